"""The one error of the index."""

from __future__ import annotations


class NotIndexable(Exception):
    """The file cannot be indexed; `code` is a stable word, `detail` a sentence for its owner."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
