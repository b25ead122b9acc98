"""Files that come whole in one request, their length unknown until they end."""

from __future__ import annotations

from dataclasses import dataclass
from io import RawIOBase

from app.domain.lifecycle import UploadState
from app.domain.ranges import ByteRange, RangeSet
from app.domain.upload import Upload, UploadId, parse_upload_id
from app.ingest.source import BodySource, HashingSource
from app.uploads.receiver import Receiver


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedFile:
    """A file that is on the disk and in no record yet; `length` in bytes."""

    id: UploadId
    owner: str
    filename: str
    length: int
    sha256: str


class WholeFiles(Receiver):
    """Receives files first and records them after, in one step: all of a file or nothing of it."""

    def receive(
        self, source: BodySource, *, owner: str, filename: str, room: int = 0
    ) -> ReceivedFile:
        """Take all of `source`, with `room` bytes reserved before; then `keep` or `drop` it.

        Raises what `UploadService.append` raises, and leaves nothing when it does.
        """
        filename = self._policy.check_filename(filename)
        upload_id = parse_upload_id(self._new_id())
        hashing = HashingSource(source)
        try:
            if room:
                self._store.reserve(upload_id, min(room, self._policy.max_length))
            length = self._store.receive(
                upload_id, hashing, self._policy.max_length + 1, self._limits
            )
            self._policy.check_length(length)
            hashing.finish()
        except BaseException:
            self._store.delete(upload_id)
            raise
        return ReceivedFile(
            id=upload_id,
            owner=owner,
            filename=filename,
            length=length,
            sha256=hashing.hexdigest(),
        )

    def keep(self, file: ReceivedFile) -> Upload:
        """Record the file as an upload that is complete, and publish it."""
        now = self._clock()
        upload = Upload(
            id=file.id,
            owner=file.owner,
            filename=file.filename,
            length=file.length,
            client_key=file.id,
            created_at=now,
            active_at=now,
            state=UploadState.VERIFYING,
            received=RangeSet.of([ByteRange(0, file.length)]),
            sha256=file.sha256,
        )
        self._records.add(upload)
        return self._completion.finish(upload)

    def open(self, file: ReceivedFile) -> RawIOBase:
        """Its bytes, from the first."""
        return self._store.open_staged(file.id)

    def drop(self, file: ReceivedFile) -> None:
        """Remove it."""
        self._store.delete(file.id)
