"""Keys of uploads that have ended, for clients which call a file the same every time."""

from __future__ import annotations

from app.domain.lifecycle import GONE
from app.records.base import UploadRecords


def release_key(records: UploadRecords, owner: str, client_key: str) -> None:
    """Let a new upload have the key of one that has ended; its record goes.

    Harmless where several do so at once: what one of them then begins is not the record that the
    others have found.
    """
    ended = records.find(owner, client_key)
    if ended is not None and ended.state in GONE:
        records.remove(ended.id)
