"""The record of one upload."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NewType

from app.core import errors
from app.core.crc32c import RangeSums, in_base64
from app.core.lifecycle import GONE, UploadState, check_transition
from app.core.policy import OPAQUE, check_chunk, media_type
from app.core.ranges import ByteRange, RangeSet

UploadId = NewType("UploadId", str)

MAX_RANGES = 10_000
"""Most separate ranges of one upload. Each adds a little to the cost of every chunk; clients that
send a few chunks at once make a handful."""

LEAST_AHEAD_BYTES = 64 * 1024
MOST_AHEAD_BYTES = 1024 * 1024 * 1024
AHEAD_SECONDS = 60
"""How far the reservation of a link's upload reaches beyond its bytes: as many as arrive in this
time at the current rate, and no more than have arrived already. Each step costs a transaction; as
the steps double, that is one chunk of 20 MB in fifty."""

PROGRESS_BYTES = 1024 * 1024
"""Bytes that must arrive before a link's upload counts as active again: fewer, however often they
come, extend neither its expiry nor its reservation."""

_ID_FORM = re.compile(r"[0-9a-f]{32}")


def parse_upload_id(text: str) -> UploadId:
    """The id in `text`; `UploadNotFound` for anything the server cannot have issued.

    Ids are 128 random bits in lower-case hexadecimal. Paths and keys are made only
    from ids that passed this check.
    """
    if not _ID_FORM.fullmatch(text):
        raise errors.UploadNotFound("No upload has this id.")
    return UploadId(text)


class UploadKind(StrEnum):
    """What happens to an upload once its bytes have arrived; the value is used in records."""

    FILE = "file"
    """Published."""
    PARTIAL = "partial"
    """Held until it is concatenated with others."""
    CONCATENATION = "concatenation"
    """Assembled from partial uploads, and published."""


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part of a concatenation, and its client's name for it (a URL)."""

    upload_id: UploadId
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An unfinished upload or a published file: the id stays the same.

    `owner` is the id of its project, and `sender` identifies its sender (see `Caller.sender`).
    `received` has the durable bytes, not the size of any file on the disk; `sums` are the checksums
    of the bytes that came with one.
    `client_key` is the client's own name for the upload (Dropzone's dzuuid), unique in its
    project; without one it is derived from the fingerprint, or the id. `fingerprint` identifies
    the file on the person's disk, so that a reloaded page finds its upload again. `length` is None
    until the client has sent it. `metadata` is further metadata of the protocol, returned
    unchanged. `repr_digest` is the digest that the file must have, as "sha256:1f2e...": a hashlib
    algorithm, and hexadecimal. `crc32c`, in base64, is known for files with cells that clients have
    sent directly to a bucket.

    Uploads through links have a reservation: `reserved` is how many bytes of quota and link they
    hold until they are complete, at least those received and at most the length. It is None for
    all others, which hold their whole length. `progress` is how many bytes had arrived at
    `active_at`. While `is_stalled`, until it makes progress again, the upload holds only its
    received bytes, and no place among the files of its link.
    """

    id: UploadId
    owner: str
    filename: str
    length: int | None
    client_key: str
    created_at: datetime
    active_at: datetime
    state: UploadState = UploadState.RECEIVING
    fingerprint: str | None = None
    received: RangeSet = RangeSet()
    sums: RangeSums = RangeSums()
    published_at: datetime | None = None
    sha256: str | None = None
    crc32c: str | None = None
    kind: UploadKind = UploadKind.FILE
    metadata: str | None = None
    repr_digest: str | None = None
    sender: str = ""
    reserved: int | None = None
    progress: int = 0
    is_stalled: bool = False

    @property
    def offset(self) -> int:
        """End of the contiguous prefix that has arrived."""
        return self.received.prefix_end

    @property
    def missing(self) -> RangeSet:
        """Ranges that have not arrived, as far as is known."""
        return self.received.missing(self.received.end if self.length is None else self.length)

    @property
    def is_covered(self) -> bool:
        """Whether every byte has arrived."""
        return self.length is not None and self.received.covers(ByteRange(0, self.length))

    @property
    def held_bytes(self) -> int:
        """Bytes of quota that the upload holds."""
        if self.state in GONE:
            return 0
        return (self.length or 0) if self.reserved is None else self.reserved

    @property
    def known_length(self) -> int:
        """The length in bytes, for steps that come only after the client has sent it."""
        if self.length is None:
            raise errors.UploadConflict("The length of the upload is not known yet.")
        return self.length

    @property
    def content_type(self) -> str:
        """The media type that the file is served with; depends only on its name."""
        return media_type(self.filename)

    @property
    def is_playable(self) -> bool:
        """Whether a browser may play the file in place."""
        return self.content_type != OPAQUE

    def with_received(
        self,
        span: ByteRange,
        now: datetime,
        *,
        is_ahead: bool = True,
        crc32c: int | None = None,
    ) -> Upload:
        """The upload after `span` became durable; the last missing byte starts verification.

        Its reservation reaches beyond the bytes if `is_ahead`. `crc32c` is that of the span's bytes
        as sent: bytes that were stored already may differ.

        Raises `TooManyGaps` if it would become too fragmented, and `ChunkMismatch` beyond a length
        that the client has declared in the meantime.

        An empty file is covered from the start, so it changes state only here, too: with its first
        (empty) chunk.
        """
        check_chunk(span, self.length)
        received = self.received.add(span)
        if len(received) > MAX_RANGES:
            raise errors.TooManyGaps(
                f"The upload has {MAX_RANGES} gaps; send what is missing first."
            )
        after = replace(self, received=received, sums=self._sums_with(span, crc32c))
        return after._active(now, is_ahead=is_ahead)._moved_on(now)

    def _sums_with(self, span: ByteRange, crc32c: int | None) -> RangeSums:
        """The sums with that of `span`; empty once some bytes have none, as the rest is useless."""
        new = list(self.received.gaps(span))
        if not new:
            return self.sums
        is_whole = crc32c is not None and new == [span] and self.sums.total == self.received.total
        return self.sums.add(span, crc32c) if is_whole and crc32c is not None else RangeSums()

    def with_length(self, length: int, now: datetime) -> Upload:
        """The upload with its length; `UploadConflict` if it already has another."""
        self.require_length(length)
        if self.received.end > length:
            raise errors.ChunkMismatch(f"{self.received.end} bytes are there already.")
        return replace(self, length=length)._active(now, is_ahead=False)._moved_on(now)

    def reserving(self, now: datetime, *, is_ahead: bool) -> Upload:
        """The upload with a reservation for its bytes and, unless stalled, the following ones."""
        if self.reserved is None:
            return self
        total, ahead = self.received.total, 0
        if self.is_stalled:
            return replace(self, reserved=total)
        if is_ahead:
            seconds = max((now - self.active_at).total_seconds(), 1.0)
            at_this_rate = int((total - self.progress) / seconds * AHEAD_SECONDS)
            ahead = min(max(min(at_this_rate, total), LEAST_AHEAD_BYTES), MOST_AHEAD_BYTES)
        reserved = max(total + ahead, self.reserved)
        return replace(
            self, reserved=reserved if self.length is None else min(reserved, self.length)
        )

    def claiming(self, count: int) -> Upload:
        """The upload holding at least `count` bytes and a place, if its reservation is smaller."""
        if self.reserved is None or (count <= self.reserved and not self.is_stalled):
            return self
        return replace(self, reserved=max(count, self.reserved), is_stalled=False)

    def stalled(self) -> Upload:
        """The upload after releasing everything it holds beyond its received bytes."""
        if self.reserved is None or self.is_stalled or self.state is not UploadState.RECEIVING:
            return self
        return replace(self, reserved=self.received.total, is_stalled=True)

    def with_parts(self, length: int, now: datetime) -> Upload:
        """The concatenation once all of its parts, `length` bytes in total, have arrived."""
        return self.with_length(length, now).with_received(ByteRange(0, length), now)

    def _active(self, now: datetime, *, is_ahead: bool) -> Upload:
        """The upload after bytes arrived; with a reservation, at least `PROGRESS_BYTES` count."""
        if self.reserved is None:
            return replace(self, active_at=now)
        total, after = self.received.total, self
        is_progress = total - self.progress >= PROGRESS_BYTES or self.is_covered
        if is_progress and self.is_stalled:
            after = replace(after, is_stalled=False)
        is_too_long = self.length is not None and self.reserved > self.length
        if total > self.reserved or is_too_long:
            after = after.reserving(now, is_ahead=is_ahead)
        return replace(after, active_at=now, progress=total) if is_progress else after

    def _moved_on(self, now: datetime) -> Upload:
        if self.state is not UploadState.RECEIVING or not self.is_covered:
            return self
        if self.kind is UploadKind.PARTIAL:
            return self.moved_to(UploadState.HELD, now)
        crc32c = self.sums.whole(self.known_length)
        after = self if crc32c is None else replace(self, crc32c=in_base64(crc32c))
        return after.moved_to(UploadState.VERIFYING, now)

    def moved_to(self, target: UploadState, now: datetime) -> Upload:
        """The upload after a legal step; raises `IllegalTransition` for any other."""
        check_transition(self.state, target)
        published_at = now if target is UploadState.COMPLETE else self.published_at
        return replace(self, state=target, active_at=now, published_at=published_at)

    def require_offset(self, offset: int) -> None:
        """Raise `OffsetMismatch` unless the first missing byte is at `offset`."""
        expected = self.received.prefix_end
        if offset != expected:
            raise errors.OffsetMismatch.of(expected=expected, provided=offset)

    def require_length(self, length: int) -> None:
        """Raise `UploadConflict` if the upload is known to have another length."""
        if self.length not in {None, length}:
            raise errors.UploadConflict(f"The upload has {self.length} bytes, not {length}.")

    def require_present(self) -> Upload:
        """The upload itself, or `UploadGone` if it was cancelled, expired or deleted."""
        if self.state in GONE:
            raise errors.UploadGone(f"The upload was {self.state.value}.")
        return self
