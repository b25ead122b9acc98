"""What the use cases ask of the records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from app.domain.lifecycle import UploadState
from app.domain.ranges import ByteRange
from app.domain.upload import Part, Upload, UploadId
from app.domain.video_list import Position, VideoList


class UploadRecords(Protocol):
    """Every call is one transaction; concurrent callers see it whole or not at all."""

    def add(
        self, upload: Upload, parts: Sequence[Part] = (), *, renews_key: bool = False
    ) -> tuple[Upload, bool]:
        """Store a new upload with what it has received, unless its owner has that client key.

        With it the `parts` of a concatenation, in order. One that renews its key first takes it
        from an upload that has ended, as `release_key` does.

        Returns the stored one, and whether it is the new one.
        """
        ...

    def add_all(self, uploads: Sequence[Upload]) -> list[tuple[Upload, bool]]:
        """Store several, each as an `add` that renews its key; all or none.

        Of two with one key the first is new.
        """
        ...

    def release_key(self, owner: str, client_key: str) -> None:
        """Take the key from an upload that has ended, so that a new one can have it.

        Harmless where the upload of that key has not ended, or there is none.
        """
        ...

    def remove(self, upload_id: UploadId) -> None:
        """Forget an upload as if it had never been; unknown ids are fine."""
        ...

    def get(self, upload_id: UploadId) -> Upload:
        """The upload; raises `UploadNotFound`."""
        ...

    def find(self, owner: str, client_key: str) -> Upload | None:
        """The owner's upload of that client key."""
        ...

    def find_fingerprint(self, owner: str, fingerprint: str, length: int) -> Upload | None:
        """The owner's newest upload of that file that is under way or complete."""
        ...

    def add_received(self, upload_id: UploadId, span: ByteRange, now: datetime) -> Upload:
        """Note that bytes are durable; the last missing ones move the upload to `verifying`.

        Raises `UploadGone` if it was cancelled or has expired meanwhile.
        """
        ...

    def touch(self, upload_id: UploadId, now: datetime) -> None:
        """Note that an upload under way was active at `now`, unless it was active since then.

        Harmless where it has ended, or is unknown.
        """
        ...

    def shift_activity(self, later: timedelta, now: datetime) -> None:
        """Move the last activity of all uploads but complete ones so much `later`, or not at all.

        None is then later than `now`.
        """
        ...

    def add_parts(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """Note that all parts of a concatenation, `length` bytes, are there: it is `verifying`.

        Harmless where it has moved on already; raises `UploadGone` if it has ended.
        """
        ...

    def parts(self, upload_id: UploadId) -> list[Part]:
        """What a concatenation is made of, in order; none of any other upload."""
        ...

    def waiting_for(self, part_id: UploadId) -> list[Upload]:
        """Concatenations that this upload is a part of, and whose bytes are not published yet."""
        ...

    def made_of(self, part_id: UploadId) -> list[Upload]:
        """Complete concatenations that this upload was a part of."""
        ...

    def forget_received(self) -> None:
        """Take back what was noted as received of every unfinished upload; all receive again."""
        ...

    def declare_length(self, upload_id: UploadId, length: int, now: datetime) -> Upload:
        """Note the length of an upload created without one; may move it to `verifying`.

        Raises `UploadConflict` if it has another length, `UploadGone` if it has ended.
        """
        ...

    def move(
        self,
        upload_id: UploadId,
        target: UploadState,
        now: datetime,
        *,
        idle_since: datetime | None = None,
    ) -> Upload:
        """Take a step of the lifecycle; of several callers exactly one succeeds.

        Raises `IllegalTransition` where the table lacks the step, or where `idle_since` is given
        and the upload was active after it.
        """
        ...

    def move_all(
        self, upload_ids: Sequence[UploadId], target: UploadState, now: datetime
    ) -> list[Upload]:
        """Take the same step with several uploads, all or none; raises as `move` does.

        Each is a microsecond later than the one before, so that lists by time keep their order.
        """
        ...

    def rename(self, upload_id: UploadId, filename: str) -> Upload:
        """Note the new name of an upload; raises `UploadGone` if it has ended."""
        ...

    def forget_key(self, upload_id: UploadId) -> None:
        """Free the client key of an upload, which is called by its id from then on."""
        ...

    def set_sha256(self, upload_id: UploadId, digest: str) -> None:
        """Note the SHA-256 (hexadecimal) of a complete upload."""
        ...

    def active(self, owner: str, limit: int) -> list[Upload]:
        """The owner's newest uploads that are under way."""
        ...

    def count_active(self) -> dict[UploadState, int]:
        """How many uploads of all owners are in each of the states of those under way."""
        ...

    def videos(
        self, owner: str, wanted: VideoList, limit: int, after: Position | None = None
    ) -> list[Upload]:
        """The owner's complete uploads that are `wanted`, in its order, from after a position."""
        ...

    def in_state(
        self, state: UploadState, limit: int, *, idle_since: datetime | None = None
    ) -> list[Upload]:
        """Uploads of all owners in a state, longest idle first, without activity after a time."""
        ...

    def without_sha256(self, limit: int) -> list[Upload]:
        """Complete uploads whose digest is not known, oldest first."""
        ...

    def states(self, upload_ids: Collection[UploadId]) -> dict[UploadId, UploadState]:
        """The states of those uploads that exist."""
        ...


def released_key(upload_id: str) -> str:
    """The key of an upload that has given up its own; no client's key has a space in it."""
    return f"ended {upload_id}"


def moved_one_by_one(uploads: Sequence[Upload], target: UploadState, now: datetime) -> list[Upload]:
    """What `UploadRecords.move_all` makes of uploads as they stand."""
    tick = timedelta(microseconds=1)
    return [upload.moved_to(target, now + tick * number) for number, upload in enumerate(uploads)]
