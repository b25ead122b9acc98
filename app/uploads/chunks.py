"""Writes request bodies into uploads: each byte once, even if several requests send it.

The path of a chunk: a view opens the body (`http/bodies.py`) and calls `append_at_offset` or
`append`. `_receive` becomes the only writer of the chunk's range (`storage/local/staging.py`).
`_write` has the writer copy the missing bytes to the disk (`storage/local/range_writer.py`, and
`ingest/copy.py` from the socket to the file), and then records them (`records/uploads.py`). With a
bucket, the files of the same names in `storage/s3` take the place of those in `storage/local`.
`completion.py` publishes the upload after its last byte.

The writer holds a lock on exactly its range; closing the file ends it, however a process ends. The
record is read again under the lock, as another request may have written some of the bytes. If a
connection breaks, what has arrived is synced and recorded, unless it is verified at its end: then
none of it is.

Of two requests with the same bytes the newer one stops the older one, which records what it has
and ends with `WriterSuperseded`. The newer one goes on after those bytes in `append`; in
`append_at_offset` its offset is no longer the upload's, so it raises `OffsetMismatch`, and its
client asks for the new one. In `append`, a small chunk with a digest stops no other request while
it arrives: it is received in memory and verified, and the first complete one is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime

from app.core import errors
from app.core.lifecycle import UploadState
from app.core.policy import UNNAMED, Allowance, UploadPolicy, check_chunk, no_allowance
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadKind
from app.ingest.copy import BodyLimits, discard
from app.ingest.slots import without_slot
from app.ingest.small_chunks import buffered
from app.ingest.source import BodySource, crc32c_of, no_watch
from app.records.uploads import UploadRecords
from app.storage.base import AddRows, BytesLost, RangeWriter, Staging
from app.uploads.completion import Completion
from app.uploads.quotas import ProjectQuotas

TAKEN_OVER = BodyLimits(idle_seconds=2.0, minimum_bytes_per_second=64 * 1024)
"""For the rest of a body that a newer request resends: drops a dead connection soon."""

NEWER_WRITER_SECONDS = 10.0
"""How long a superseded request waits for the newer one, to report its success."""

Progress = Callable[[int], None]
"""Called with the upload's offset whenever more of its bytes are durable and recorded."""


def _no_progress(_offset: int) -> None:
    """For requests that get a single response at their end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingChunk:
    """The bytes of one request and their range in the file.

    `length` is how many the request announces; None for a chunked body, which may end before the
    range does. With `is_at_offset`, they must begin at the upload's offset.
    """

    chunk: ByteRange
    length: int | None
    source: BodySource
    is_at_offset: bool
    progress: Progress = _no_progress

    def is_needed_by(self, upload: Upload) -> bool:
        """Whether any of the bytes are missing; the single chunk of an empty file has none."""
        return upload.state is UploadState.RECEIVING and (
            self.chunk.length == 0 or not upload.received.covers(self.chunk)
        )

    def check_offset(self, upload: Upload) -> None:
        """Raise like `_check_offset` if the chunk must begin at the upload's offset."""
        if self.is_at_offset:
            _check_offset(upload, self.chunk.start, self.source)


def _check_offset(upload: Upload, offset: int, source: BodySource) -> None:
    """Raise `OffsetMismatch` or `UploadComplete` unless bytes may be appended at `offset`."""
    upload.require_offset(offset)
    if upload.state is not UploadState.RECEIVING and source.remaining:
        raise errors.UploadComplete("Every byte of the upload has arrived already.")


class Chunks:
    """Receives request bodies."""

    taken_over = TAKEN_OVER
    newer_writer_seconds = NEWER_WRITER_SECONDS

    def __init__(  # noqa: PLR0913 - called by the composition root alone, with names
        self,
        records: UploadRecords,
        staging: Staging,
        *,
        completion: Completion,
        policy: UploadPolicy,
        quotas: ProjectQuotas,
        limits: BodyLimits,
        clock: Callable[[], datetime],
        allowance: Allowance = no_allowance,
    ) -> None:
        self._records = records
        self._staging = staging
        self._completion = completion
        self._policy = policy
        self._quotas = quotas
        self._limits = limits
        self._clock = clock
        self._allowance = allowance

    def append(self, upload: Upload, start: int, source: BodySource) -> Upload:
        """Write all of `source` from `start` on; returns the updated upload.

        Does not write bytes again that are stored already. The request that writes the last missing
        bytes completes the upload. After an error, received bytes are kept, unless the source has a
        digest to match. Of two requests with the same bytes, the newer one takes over; if they are
        small and have digests, the first one received in full is stored. Raises `ChunkMismatch`,
        `BodyTruncated`, `BodyStalled`, `DigestMismatch`, `UploadGone`, `TooLarge`,
        `TypeNotAllowed`, `NoRoom`, `StorageFailed`.
        """
        length = source.remaining
        chunk = self._chunk(upload, start, length)
        arrival = IncomingChunk(chunk=chunk, length=length, source=source, is_at_offset=False)

        def stop_if_stored() -> None:
            if not arrival.is_needed_by(self._records.get(upload.id).require_present()):
                raise errors.WriterSuperseded("Another request has sent the same bytes.")

        # A small chunk with a digest is received in full and verified before it is written.
        is_needed = arrival.is_needed_by(upload)
        body = buffered(source, self._limits, stop_if_stored) if is_needed else nullcontext(source)
        try:
            try:
                with body as received:
                    upload = self._receive(upload, replace(arrival, source=received))
            except errors.WriterSuperseded:
                upload = self._await_newer_writer(upload, arrival)
        except errors.UploadError:
            self._finish_after_error(upload)
            raise
        return self._completion.finish(upload)

    def append_at_offset(
        self,
        upload: Upload,
        offset: int,
        source: BodySource,
        *,
        progress: Progress = _no_progress,
    ) -> Upload:
        """Write all of `source` after the stored bytes; raises like `append`.

        Never waits for the whole chunk in memory: its client resumes from any offset, so that each
        byte that has arrived is worth keeping.

        Also raises `OffsetMismatch` unless `offset` is the upload's offset once older requests have
        ended, `UploadComplete` if no bytes are missing, and `WriterSuperseded` as soon as a newer
        request takes over.
        """
        _check_offset(upload, offset, source)  # First, even if it is far beyond the limit.
        length = source.remaining
        chunk = self._chunk(upload, offset, length)
        if upload.length is None and length:
            self._enlarge(upload, chunk.end)
        arrival = IncomingChunk(
            chunk=chunk, length=length, source=source, is_at_offset=True, progress=progress
        )
        try:
            upload = self._receive(upload, arrival)
        except errors.UploadError:
            self._finish_after_error(upload)
            raise
        return self._completion.finish(upload)

    def _receive(self, upload: Upload, arrival: IncomingChunk) -> Upload:
        """Write the chunk as the only writer of its range; returns the updated upload."""
        chunk, source, tries = arrival.chunk, arrival.source, 0
        while arrival.is_needed_by(upload):
            tries, is_begun = tries + 1, False
            try:
                with self._staging.writer(upload.id, chunk, self._limits) as writer:
                    is_begun = True
                    return self._write(upload, arrival, writer)
            except BytesLost as error:
                # Not created yet, published, ended, or really lost: `upload` is stale.
                upload = self._records.get(upload.id).require_present()
                if not arrival.is_needed_by(upload):
                    break  # Another node has received the bytes.
                if is_begun and (arrival.length is None or source.remaining != arrival.length):
                    raise errors.StorageFailed(
                        "The file was removed while it was written."
                    ) from error
                if tries > 1:
                    upload = self._completion.give_up(upload)
                    break
                if not upload.received:  # An upload with bytes has lost them.
                    allocates = upload.reserved is None
                    self._staging.reserve(upload.id, upload.length or 0, allocates=allocates)
        # The bytes are stored already. Discard them, so that the connection can be reused. An
        # append at the end of a complete upload must be empty: a single byte is an error.
        arrival.check_offset(upload)
        most = 1 if arrival.is_at_offset else None
        if discard(source, limits=self._limits, watch=no_watch, count=most) and most:
            raise errors.UploadComplete("Every byte of the upload has arrived already.")
        source.finish()
        return self._records.get(upload.id).require_present()

    def _write(self, upload: Upload, arrival: IncomingChunk, writer: RangeWriter) -> Upload:
        """Write the missing bytes first and record them second; returns the updated upload.

        So a record never claims bytes that are not there. The writer calls `checkpoint` at
        intervals, and this method does after each range that ends before the chunk does. The rest
        is recorded with the chunk's checksum once the source is finished. Bytes that are verified
        at their end are not recorded before.
        """
        chunk, source = arrival.chunk, arrival.source

        def checkpoint(span: ByteRange) -> None:
            nonlocal upload
            if not source.is_verified_at_end:
                with writer.recording() as rows:
                    upload = self._records.add_received(upload, span, self._clock(), rows=rows)
                arrival.progress(upload.offset)

        # Another request may have written some of the bytes while this one waited for the lock.
        upload = self._records.get(upload.id).require_present()
        arrival.check_offset(upload)
        gaps = list(upload.received.gaps(chunk)) if upload.state is UploadState.RECEIVING else []
        if upload.reserved is not None and arrival.length is not None:
            upload = self.reserve(upload, sum(gap.length for gap in gaps))
        end = chunk.start
        for gap in gaps:
            writer.skip(gap.start - end, source)
            end = writer.write(gap, source, checkpoint)
            if end < chunk.end:
                checkpoint(ByteRange(gap.start, end))
            if end < gap.end:
                break  # A source of unknown length has ended.
        else:
            writer.skip(chunk.end - end, source)
            end = chunk.end
        if upload.length is None:
            self._policy_of(upload).check_length(end)
            self._quotas.check_growth(upload, end)
        writer.finish(source)
        arrived = ByteRange(chunk.start, end)
        with writer.recording() as rows:
            return self._records.add_received(
                upload, arrived, self._clock(), crc32c=crc32c_of(source), rows=rows
            )

    def _finish_after_error(self, upload: Upload) -> None:
        """Complete the upload even if its request failed after the last missing byte."""
        with suppress(errors.UploadError):
            self._completion.finish(self._records.get(upload.id))

    def _await_newer_writer(self, upload: Upload, arrival: IncomingChunk) -> Upload:
        """Two active requests send the same bytes: report the outcome of the newer one."""
        discard(arrival.source, limits=self.taken_over, watch=no_watch)
        deadline = time.monotonic() + self.newer_writer_seconds
        while time.monotonic() < deadline:
            upload = self._records.get(upload.id).require_present()
            if not arrival.is_needed_by(upload):
                return upload
            with without_slot():  # The newer one may need the slot.
                time.sleep(0.02)
        raise errors.WriterSuperseded("A newer request writes the same bytes.")

    def check(self, upload: Upload, span: ByteRange) -> None:
        """Raise the errors that `append` would raise for this chunk before it reads any bytes."""
        self._chunk(upload, span.start, span.length)

    def reserve(self, upload: Upload, count: int) -> Upload:
        """Reserve space for the next bytes of an upload through a link, if needed.

        Raises `QuotaExceeded`, `LinkFull` or `TooMuchReserved` unless `count` bytes fit.
        """
        return self._records.reserve(upload, count, self._clock()) if count else upload

    def note_stored(
        self, upload: Upload, stored: Sequence[tuple[ByteRange, int, AddRows]]
    ) -> Upload:
        """Record bytes that clients sent straight to the store; returns the updated upload.

        Each range comes with its CRC32C, and with what adds the rows of the store. The request that
        records the last missing bytes completes the upload. Raises `BytesLost`.
        """
        for span, crc32c, rows in stored:
            upload = self._records.add_received(
                upload, span, self._clock(), crc32c=crc32c, rows=rows
            )
        return self._completion.finish(upload)

    def declare_length(self, upload: Upload, length: int) -> Upload:
        """Set the length of an upload created without one; completes it if all bytes are stored.

        Reserves the space. Raises `UploadConflict` if the upload has another length,
        `ChunkMismatch` if more bytes are stored already, `TooLarge`, `NoRoom`, `UploadGone`.
        """
        if upload.kind is UploadKind.CONCATENATION:
            raise errors.UploadConflict("The upload gets its length from other uploads.")
        self._policy.check_length(length)
        self._check_type(upload)
        if upload.length is None:
            upload.with_length(length, self._clock())  # Only a check: the result is not stored.
            self._quotas.check_growth(upload, length)
            self._enlarge(upload, length)
        return self._completion.finish(
            self._records.declare_length(upload.id, length, self._clock())
        )

    def stop_writer(self, upload: Upload) -> Upload:
        """Wait until no request writes at the upload's offset, so that the offset is exact.

        Such a request gets a moment to end by itself and is then stopped. Publishes a concatenation
        whose parts have all arrived. Returns the updated upload.
        """
        is_whole = upload.kind is UploadKind.CONCATENATION
        if upload.state is UploadState.HELD or (is_whole and upload.state is UploadState.RECEIVING):
            return self._completion.finish(upload)
        offset = -1
        while upload.state is UploadState.RECEIVING and upload.offset != offset:
            offset = upload.offset  # If the offset moves, another request may be writing there.
            with suppress(BytesLost):  # It was published or has ended: the record shows which.
                self._staging.stop_writer(upload.id, offset)
            upload = self._records.get(upload.id).require_present()
        return upload

    def _chunk(self, upload: Upload, start: int, length: int | None) -> ByteRange:
        """The range a request will write; without a length, up to the file's end or the limit.

        Raises the errors that refuse it before any byte is read.
        """
        if upload.kind is UploadKind.CONCATENATION:
            raise errors.UploadConflict("The upload gets its bytes from other uploads.")
        self._check_type(upload)
        policy = self._policy_of(upload)
        if length is not None:
            end = policy.check_length(start + length)
            if upload.length is None:
                self._quotas.check_growth(upload, end)
        elif upload.length is not None:
            end = policy.check_length(upload.length)
        else:
            end = self._quotas.largest(upload, policy.max_length) + 1
        chunk = ByteRange(start, max(start, end))
        check_chunk(chunk, upload.length)
        return chunk

    def _policy_of(self, upload: Upload) -> UploadPolicy:
        """Returns the policy, with the sender's limits unless the length was checked already."""
        if upload.length is not None or not upload.sender:
            return self._policy
        return self._policy.within(self._allowed(upload))

    def _allowed(self, upload: Upload) -> int | None:
        filename = None if upload.kind is UploadKind.PARTIAL else upload.filename
        return self._allowance(upload.sender, filename, upload_id=upload.id)

    def _check_type(self, upload: Upload) -> None:
        """Raise `TypeNotAllowed` before bytes of a forbidden type are written.

        The upload may have been created without a name, or when the settings allowed its type.
        """
        if upload.kind is UploadKind.PARTIAL:
            return
        self._policy.check_type(upload.filename)
        # Other names were checked when the upload was created.
        if upload.filename == UNNAMED and upload.sender:
            self._allowed(upload)

    def _enlarge(self, upload: Upload, length: int) -> None:
        """Reserve more space for an upload that was created without a length.

        Does not recreate a missing file: it would have zeros in place of the bytes.
        """
        with suppress(BytesLost):  # The next write or publish finds out why.
            self._staging.enlarge(upload.id, length, allocates=upload.reserved is None)
