"""What one sender may have on its way: so many uploads, so many bytes, so many new ones a minute.

Uploads without a sender have no such limits: where nobody signs in, everybody is one. Of those who
use an upload link each visitor is a sender.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, func, select

from app.core.errors import TooManyUploads, TooMuchReserved, too_many
from app.core.lifecycle import UploadState
from app.core.numbers import bytes_in_words
from app.core.upload import Upload
from app.db.minute_counts import MinuteCounts
from app.db.sql import lock_name
from app.db.tables import HAS_SENDER, uploads


class SenderLimits:
    """Refuses uploads beyond the limits, in their creating transaction; 0 stands for no limit.

    SQLite has one writer at a time, so the count is exact. PostgreSQL needs a lock on the sender,
    whose uploads may be to different projects.
    """

    def __init__(
        self, counts: MinuteCounts, *, per_minute: int, max_uploads: int, max_reserved_bytes: int
    ) -> None:
        self._counts = counts
        self._per_minute = per_minute
        self._max_uploads = max_uploads
        self._max_reserved_bytes = max_reserved_bytes

    def observe(self, connection: Connection, before: Upload | None, after: Upload | None) -> None:
        """Raise `TooManyRequests`, `TooManyUploads` or `TooMuchReserved` for one too many."""
        if after is None or not after.sender or after.state is not UploadState.RECEIVING:
            return
        if before is None:
            self._check_rate(after.sender)
        is_counted = before is None and self._max_uploads
        is_longer = (before is None or before.length is None) and after.length
        if is_counted or (is_longer and self._max_reserved_bytes):
            lock_name(connection, after.sender)
        if is_counted:
            self._check_count(connection, after.sender)
        if is_longer and self._max_reserved_bytes:
            self._check_bytes(connection, after)

    def _check_rate(self, sender: str) -> None:
        # A name of its own: requests of the sender are counted under the sender's.
        if self._per_minute and self._counts.add(f"new {sender}") > self._per_minute:
            raise too_many("new uploads", self._per_minute, wait_seconds=self._counts.seconds_left)

    def _check_count(self, connection: Connection, sender: str) -> None:
        count = connection.execute(_of(sender, func.count())).scalar_one()
        if count > self._max_uploads:
            raise TooManyUploads(
                f"{self._max_uploads} uploads are on their way, which is the most at once: finish "
                "or cancel some first."
            )

    def _check_bytes(self, connection: Connection, upload: Upload) -> None:
        lengths = connection.execute(_of(upload.sender, func.sum(uploads.c.length))).scalar_one()
        if lengths <= self._max_reserved_bytes:
            return
        rows = connection.execute(_of(upload.sender, uploads.c.length, uploads.c.received))
        missing = sum(row.length - row.received.total for row in rows if row.length is not None)
        if missing > self._max_reserved_bytes:
            raise TooMuchReserved(
                f"With this file {bytes_in_words(missing)} would be on their way; at most "
                f"{bytes_in_words(self._max_reserved_bytes)} may be at once."
            )


def _of(sender: str, *columns: Any) -> Select[Any]:
    is_unfinished = uploads.c.state == UploadState.RECEIVING
    return select(*columns).where(uploads.c.sender == sender, HAS_SENDER, is_unfinished)
