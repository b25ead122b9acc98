"""Uploads from their creation to the last byte."""

from __future__ import annotations

import time
from dataclasses import dataclass

from app.domain.errors import (
    StorageFailed,
    UploadComplete,
    UploadConflict,
    UploadNotFound,
    WriterSuperseded,
)
from app.domain.lifecycle import IllegalTransition, UploadState
from app.domain.policy import check_chunk, check_client_key, check_fingerprint
from app.domain.ranges import ByteRange
from app.domain.upload import Upload, UploadId, parse_upload_id
from app.ingest.copy import BodyLimits, discard
from app.ingest.source import BodySource
from app.storage.base import BytesLost, RangeWriter
from app.uploads.receiver import Receiver

TAKEN_OVER = BodyLimits(idle_seconds=2.0, minimum_bytes_per_second=64 * 1024)
"""For the rest of a body whose bytes a newer request brings: a dead connection goes at once."""

NEWER_WRITER_SECONDS = 10.0
"""How long a superseded request waits to answer with the newer one's success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """What a client tells of a file it is going to send; `length` in bytes, None if unknown."""

    owner: str
    filename: str
    length: int | None
    client_key: str | None = None
    fingerprint: str | None = None


class UploadService(Receiver):
    """Everything a protocol does to an upload under way."""

    def create(self, new: NewUpload) -> tuple[Upload, bool]:
        """The upload for a file, with its room reserved, and whether it is a new one.

        An earlier one is returned for a client key that is known, and for the fingerprint of a
        file that is under way or complete. Raises `TooLarge`, `NoRoom`, `TypeNotAllowed`,
        `InvalidRequest`, `UploadConflict` where the earlier one has another length, `UploadGone`
        where it has ended.
        """
        filename = self._policy.check_filename(new.filename)
        room = self._policy.check_length(new.length or 0)
        existing = self._find_file(new)
        if existing is not None:
            return existing, False
        upload_id, now = parse_upload_id(self._new_id()), self._clock()
        key = upload_id if new.client_key is None else check_client_key(new.client_key)
        upload = Upload(
            id=upload_id,
            owner=new.owner,
            filename=filename,
            length=new.length,
            client_key=key,
            fingerprint=new.fingerprint,
            created_at=now,
            active_at=now,
        )
        stored, is_new = self._records.add(upload)
        if is_new:
            self._reserve_or_forget(stored, room)
        return _same_length(stored.require_present(), new.length), is_new

    def get(self, owner: str, upload_id: UploadId) -> Upload:
        """The upload; raises `UploadNotFound` or `UploadGone`."""
        upload = self._records.get(upload_id)
        if upload.owner != owner:
            raise UploadNotFound("No upload has this id.")
        return upload.require_present()

    def find(self, owner: str, client_key: str, length: int) -> Upload | None:
        """The upload a client calls by its own key; `UploadConflict` if of another length."""
        upload = self._records.find(owner, check_client_key(client_key))
        return None if upload is None else _same_length(upload.require_present(), length)

    def active(self, owner: str, limit: int) -> list[Upload]:
        """Uploads under way, newest first."""
        return self._records.active(owner, limit)

    def append(self, upload: Upload, start: int, source: BodySource) -> Upload:
        """Take all of `source` as the bytes from `start`; the upload as it is afterwards.

        Bytes that are there already are not written again. The last missing ones complete the
        upload, whoever brings them. Where it raises, whatever arrived is kept, unless the source
        has a digest to match. Raises `ChunkMismatch`, `BodyTruncated`, `BodyStalled`,
        `DigestMismatch`, `UploadGone`, `TooLarge`, `NoRoom`, `StorageFailed`.
        """
        chunk = self._chunk(upload, start, source.remaining)
        try:
            upload = self._receive(upload, chunk, source)
        except WriterSuperseded:
            upload = self._await_newer_writer(upload, chunk, source)
        return self._finish_if_covered(upload)

    def cancel(self, owner: str, upload_id: UploadId) -> None:
        """End an upload and free its room; raises `UploadComplete` where it is too late."""
        upload = self.get(owner, upload_id)
        try:
            self._records.move(upload.id, UploadState.CANCELLED, self._clock())
        except IllegalTransition as error:
            self.get(owner, upload_id)
            raise UploadComplete("The upload is complete: delete its video.") from error
        self._store.delete(upload.id)

    def _find_file(self, new: NewUpload) -> Upload | None:
        if new.fingerprint is None or new.length is None:
            return None
        fingerprint = check_fingerprint(new.fingerprint)
        return self._records.find_fingerprint(new.owner, fingerprint, new.length)

    def _chunk(self, upload: Upload, start: int, length: int | None) -> ByteRange:
        """What a request will write; one of unknown length may fill the file, or the limit."""
        if length is None:
            limit = self._policy.max_length + 1 if upload.length is None else upload.length
            return ByteRange(start, max(start, limit))
        chunk = ByteRange(start, start + length)
        check_chunk(chunk, upload.length)
        self._policy.check_length(chunk.end)
        return chunk

    def _finish_if_covered(self, upload: Upload) -> Upload:
        if upload.state is UploadState.VERIFYING:
            return self._completion.finish(upload)
        return upload

    def _reserve_or_forget(self, upload: Upload, room: int) -> None:
        try:
            self._store.reserve(upload.id, room)
        except BaseException:
            self._records.remove(upload.id)
            raise

    def _receive(self, upload: Upload, chunk: ByteRange, source: BodySource) -> Upload:
        if _needs(upload, chunk):
            before = source.remaining
            try:
                return self._write(upload, chunk, source)
            except BytesLost as error:
                # Not made yet, published, ended, or really lost: the caller's knowledge is old.
                upload = self._records.get(upload.id).require_present()
                if before is None or source.remaining != before:
                    raise StorageFailed("The file was removed while it was written.") from error
        if _needs(upload, chunk):
            return self._write_again(upload, chunk, source)
        discard(source, limits=self._limits, watch=_no_watch)
        source.finish()
        return self._records.get(upload.id).require_present()

    def _write_again(self, upload: Upload, chunk: ByteRange, source: BodySource) -> Upload:
        """After the file was not there: make it if no byte is missed, else give the upload up."""
        if not upload.received:
            self._store.reserve(upload.id, upload.length or 0)
        try:
            return self._write(upload, chunk, source)
        except BytesLost:
            self._completion.give_up(upload)

    def _write(self, upload: Upload, chunk: ByteRange, source: BodySource) -> Upload:
        with self._store.exclusive(upload.id, chunk, self._limits) as writer:
            # Another request may have brought some of the bytes while this one waited its turn.
            upload = self._records.get(upload.id).require_present()
            gaps = list(upload.received.gaps(chunk)) if _needs(upload, chunk) else []
            end = self._write_gaps(upload, chunk, gaps, source, writer)
            self._policy.check_length(end)
            source.finish()
            arrived = ByteRange(chunk.start, end)
            return self._records.add_received(upload.id, arrived, self._clock())

    def _write_gaps(
        self,
        upload: Upload,
        chunk: ByteRange,
        gaps: list[ByteRange],
        source: BodySource,
        writer: RangeWriter,
    ) -> int:
        """Bytes first, record second: a crash between loses knowledge of bytes, not bytes."""

        def checkpoint(span: ByteRange) -> None:
            if not source.is_verified_at_end:
                self._records.add_received(upload.id, span, self._clock())

        position = chunk.start
        for gap in gaps:
            writer.skip(gap.start - position, source)
            position = writer.write(gap, source, checkpoint)
            if position < chunk.end:
                checkpoint(ByteRange(gap.start, position))
            if position < gap.end:
                return position
        writer.skip(chunk.end - position, source)
        return chunk.end

    def _await_newer_writer(self, upload: Upload, chunk: ByteRange, source: BodySource) -> Upload:
        """Two living requests bring the same bytes: answer with what the newer one achieves."""
        discard(source, limits=TAKEN_OVER, watch=_no_watch)
        deadline = time.monotonic() + NEWER_WRITER_SECONDS
        while time.monotonic() < deadline:
            upload = self._records.get(upload.id).require_present()
            if not _needs(upload, chunk):
                return upload
            time.sleep(0.02)
        raise WriterSuperseded("A newer request writes the same bytes.")


def _needs(upload: Upload, chunk: ByteRange) -> bool:
    """Whether the chunk has anything to bring; the one chunk of an empty file has no bytes."""
    return upload.state is UploadState.RECEIVING and (
        chunk.length == 0 or not upload.received.covers(chunk)
    )


def _no_watch() -> None:
    """For bytes that are dropped: nothing can take them over."""


def _same_length(upload: Upload, length: int | None) -> Upload:
    if upload.length != length:
        raise UploadConflict(
            f"The upload was created with {upload.length} bytes, not with {length}."
        )
    return upload
