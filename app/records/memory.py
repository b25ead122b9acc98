"""Records in memory: the twin of `sql.py`, for tests of what stands above."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from app.domain.errors import UploadNotFound
from app.domain.lifecycle import ACTIVE, GONE, IllegalTransition, UploadState
from app.domain.ranges import ByteRange, RangeSet
from app.domain.upload import Part, Upload, UploadId
from app.domain.video_list import Position, VideoList
from app.records.base import moved_one_by_one, released_key


class MemoryRecords:
    """`UploadRecords` in a dictionary under one lock."""

    def __init__(self) -> None:
        self._uploads: dict[UploadId, Upload] = {}
        self._parts: dict[UploadId, list[Part]] = {}
        self._lock = threading.RLock()

    def add(
        self, upload: Upload, parts: Sequence[Part] = (), *, renews_key: bool = False
    ) -> tuple[Upload, bool]:
        """See `UploadRecords.add`."""
        with self._lock:
            if renews_key:
                self.release_key(upload.owner, upload.client_key)
            existing = self.find(upload.owner, upload.client_key)
            if existing is not None:
                return existing, False
            self._uploads[upload.id] = upload
            self._parts[upload.id] = list(parts)
            return upload, True

    def add_all(self, uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        """See `UploadRecords.add_all`."""
        with self._lock:
            return [
                self.add(upload, renews_key=upload.id not in self._uploads) for upload in uploads
            ]

    def release_key(self, owner: str, client_key: str) -> None:
        """See `UploadRecords.release_key`."""
        with self._lock:
            ended = self.find(owner, client_key)
            if ended is not None and ended.state in GONE:
                self._uploads[ended.id] = replace(ended, client_key=released_key(ended.id))

    def remove(self, upload_id: UploadId) -> None:
        """See `UploadRecords.remove`."""
        with self._lock:
            self._uploads.pop(upload_id, None)
            self._parts.pop(upload_id, None)

    def get(self, upload_id: UploadId) -> Upload:
        """See `UploadRecords.get`."""
        with self._lock:
            if upload_id not in self._uploads:
                raise UploadNotFound("No upload has this id.")
            return self._uploads[upload_id]

    def find(self, owner: str, client_key: str) -> Upload | None:
        """See `UploadRecords.find`."""
        found = self._where(lambda u: u.owner == owner and u.client_key == client_key)
        return next(iter(found), None)

    def find_fingerprint(self, owner: str, fingerprint: str, length: int) -> Upload | None:
        """See `UploadRecords.find_fingerprint`."""
        found = self._where(
            lambda u: (
                (u.owner, u.fingerprint, u.length) == (owner, fingerprint, length)
                and u.state in ACTIVE | {UploadState.COMPLETE}
            )
        )
        return max(found, key=lambda u: u.created_at, default=None)

    def add_received(self, upload_id: UploadId, span: ByteRange, now: datetime) -> Upload:
        """See `UploadRecords.add_received`."""
        with self._lock:
            upload = self.get(upload_id).require_present().with_received(span, now)
            self._uploads[upload_id] = upload
            return upload

    def add_parts(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """See `UploadRecords.add_parts`."""
        with self._lock:
            upload = self.get(upload_id).require_present()
            if upload.state is UploadState.RECEIVING:
                self._uploads[upload_id] = upload.with_parts(length, now)
            return self._uploads[upload_id]

    def parts(self, upload_id: UploadId) -> list[Part]:
        """See `UploadRecords.parts`."""
        with self._lock:
            return self._parts.get(upload_id, [])

    def waiting_for(self, part_id: UploadId) -> list[Upload]:
        """See `UploadRecords.waiting_for`."""
        return self._where(
            lambda u: (
                u.state in {UploadState.RECEIVING, UploadState.VERIFYING}
                and any(part.upload_id == part_id for part in self.parts(u.id))
            )
        )

    def made_of(self, part_id: UploadId) -> list[Upload]:
        """See `UploadRecords.made_of`."""
        return self._where(
            lambda u: (
                u.state is UploadState.COMPLETE
                and any(part.upload_id == part_id for part in self.parts(u.id))
            )
        )

    def forget_received(self) -> None:
        """See `UploadRecords.forget_received`."""
        with self._lock:
            for upload in self._where(lambda u: u.state in ACTIVE):
                self._uploads[upload.id] = replace(
                    upload, received=RangeSet(), state=UploadState.RECEIVING
                )

    def touch(self, upload_id: UploadId, now: datetime) -> None:
        """See `UploadRecords.touch`."""
        with self._lock:
            for upload in self._where(lambda u: u.id == upload_id and u.state in ACTIVE):
                active_at = max(upload.active_at, now)
                self._uploads[upload_id] = replace(upload, active_at=active_at)

    def shift_activity(self, later: timedelta, now: datetime) -> None:
        """See `UploadRecords.shift_activity`."""
        with self._lock:
            for upload in self._where(lambda u: u.state is not UploadState.COMPLETE):
                active_at = min(upload.active_at + later, now)
                self._uploads[upload.id] = replace(upload, active_at=active_at)

    def declare_length(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """See `UploadRecords.declare_length`."""
        with self._lock:
            upload = self.get(upload_id).require_present().with_length(length, now)
            self._uploads[upload_id] = upload
            return upload

    def move(
        self,
        upload_id: UploadId,
        target: UploadState,
        now: datetime,
        *,
        idle_since: datetime | None = None,
    ) -> Upload:
        """See `UploadRecords.move`."""
        with self._lock:
            before = self.get(upload_id)
            if idle_since is not None and before.active_at > idle_since:
                raise IllegalTransition(f"the upload was active at {before.active_at}")
            self._uploads[upload_id] = before.moved_to(target, now)
            return self._uploads[upload_id]

    def move_all(
        self, upload_ids: Sequence[UploadId], target: UploadState, now: datetime
    ) -> list[Upload]:
        """See `UploadRecords.move_all`."""
        with self._lock:
            moved = moved_one_by_one([self.get(key) for key in upload_ids], target, now)
            self._uploads.update((upload.id, upload) for upload in moved)
            return moved

    def rename(self, upload_id: UploadId, filename: str) -> Upload:
        """See `UploadRecords.rename`."""
        with self._lock:
            upload = replace(self.get(upload_id).require_present(), filename=filename)
            self._uploads[upload_id] = upload
            return upload

    def forget_key(self, upload_id: UploadId) -> None:
        """See `UploadRecords.forget_key`."""
        with self._lock:
            self._uploads[upload_id] = replace(self.get(upload_id), client_key=upload_id)

    def set_sha256(self, upload_id: UploadId, digest: str) -> None:
        """See `UploadRecords.set_sha256`."""
        with self._lock:
            self._uploads[upload_id] = replace(self.get(upload_id), sha256=digest)

    def active(self, owner: str, limit: int) -> list[Upload]:
        """See `UploadRecords.active`."""
        found = self._where(lambda u: u.owner == owner and u.state in ACTIVE)
        found.sort(key=lambda u: u.id)
        return sorted(found, key=lambda u: u.created_at, reverse=True)[:limit]

    def count_active(self) -> dict[UploadState, int]:
        """See `UploadRecords.count_active`."""
        counts = Counter(upload.state for upload in self._where(lambda u: u.state in ACTIVE))
        return {state: counts[state] for state in sorted(ACTIVE)}

    def videos(
        self, owner: str, wanted: VideoList, limit: int, after: Position | None = None
    ) -> list[Upload]:
        """See `UploadRecords.videos`."""
        found = self._where(
            lambda u: (
                u.owner == owner and u.state is UploadState.COMPLETE and wanted.has(u.filename)
            )
        )
        found.sort(key=wanted.order.position, reverse=wanted.order.is_descending)
        position = wanted.order.position
        if after is not None and wanted.order.is_descending:
            found = [video for video in found if position(video) < after]
        elif after is not None:
            found = [video for video in found if position(video) > after]
        return found[:limit]

    def in_state(
        self, state: UploadState, limit: int, *, idle_since: datetime | None = None
    ) -> list[Upload]:
        """See `UploadRecords.in_state`."""
        found = self._where(
            lambda u: u.state is state and (idle_since is None or u.active_at <= idle_since)
        )
        return sorted(found, key=lambda u: u.active_at)[:limit]

    def without_sha256(self, limit: int) -> list[Upload]:
        """See `UploadRecords.without_sha256`."""
        found = self._where(lambda u: u.state is UploadState.COMPLETE and u.sha256 is None)
        return sorted(found, key=lambda u: u.active_at)[:limit]

    def states(self, upload_ids: Collection[UploadId]) -> dict[UploadId, UploadState]:
        """See `UploadRecords.states`."""
        return {u.id: u.state for u in self._where(lambda u: u.id in upload_ids)}

    def _where(self, condition: Callable[[Upload], bool]) -> list[Upload]:
        with self._lock:
            return [upload for upload in self._uploads.values() if condition(upload)]
