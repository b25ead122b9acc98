"""The one error of the index."""

from __future__ import annotations


class NotIndexable(Exception):
    """The file cannot be indexed; `code` is a stable word, `detail` a sentence for its owner."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class LongIndex(Exception):
    """The index has more entries than may be read here; see `entries.py`."""

    def __init__(self, entries: int) -> None:
        super().__init__(f"the index has {entries} entries")
        self.entries = entries
