"""Records that tell of uploads that were created and of the steps they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from app.domain.lifecycle import UploadState
from app.domain.upload import Part, Upload, UploadId
from app.records.engine import Database
from app.records.sql import SqlRecords

CREATED = "created"

Listener = Callable[[str], None]
"""Told `CREATED`, or the state that an upload has come to, once the transaction is committed.

Of several callers that try the same step one succeeds, so each step is told once, by the process
that took it."""


def no_listener(_step: str) -> None:
    """For processes that count nothing."""


class AnnouncingRecords(SqlRecords):
    """`SqlRecords` with a listener."""

    def __init__(self, database: Database, listener: Listener) -> None:
        super().__init__(database)
        self._tell = listener

    def add(
        self, upload: Upload, parts: Sequence[Part] = (), *, renews_key: bool = False
    ) -> tuple[Upload, bool]:
        """See `UploadRecords.add`."""
        stored, is_new = super().add(upload, parts, renews_key=renews_key)
        if is_new:
            self._tell(CREATED)
        return stored, is_new

    def add_all(self, uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        """See `UploadRecords.add_all`."""
        stored = super().add_all(uploads)
        for _, is_new in stored:
            if is_new:
                self._tell(CREATED)
        return stored

    def move(
        self,
        upload_id: UploadId,
        target: UploadState,
        now: datetime,
        *,
        idle_since: datetime | None = None,
    ) -> Upload:
        """See `UploadRecords.move`."""
        moved = super().move(upload_id, target, now, idle_since=idle_since)
        self._tell(moved.state)
        return moved

    def move_all(
        self, upload_ids: Sequence[UploadId], target: UploadState, now: datetime
    ) -> list[Upload]:
        """See `UploadRecords.move_all`."""
        moved = super().move_all(upload_ids, target, now)
        for upload in moved:
            self._tell(upload.state)
        return moved
