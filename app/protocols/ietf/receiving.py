"""From the content of a request to the bytes of an upload."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.errors import ChunkMismatch, OffsetMismatch
from app.domain.upload import Upload
from app.ingest.source import BodySource
from app.protocols.ietf.answers import Interim
from app.protocols.ietf.errors import InconsistentLength
from app.protocols.ietf.transfer import Transfer
from app.protocols.ietf.versions import InteropVersion
from app.uploads.chunks import Chunks
from app.uploads.service import UploadService


@dataclass(frozen=True, slots=True)
class Receiving:
    """One request's way into the core."""

    uploads: UploadService
    chunks: Chunks
    version: InteropVersion
    interim: Interim

    def receive(self, upload: Upload, transfer: Transfer, source: BodySource) -> Upload:
        """The upload after the bytes of `source`; complete if they were the last.

        Raises `OffsetMismatch`, `InconsistentLength`, and what the core does.
        """
        if transfer.offset != upload.offset:
            raise OffsetMismatch.of(expected=upload.offset, provided=transfer.offset)
        length = transfer.length(upload.length)
        if length is not None and upload.length is None:
            upload = self.chunks.declare_length(upload, length)
        if transfer.is_last or transfer.content_length != 0:
            upload = self._append(upload, transfer, source)
        return self._completed(upload) if transfer.is_last else upload

    def _append(self, upload: Upload, transfer: Transfer, source: BodySource) -> Upload:
        try:
            return self.chunks.append_at_offset(
                upload, transfer.offset, source, progress=self.interim.progress
            )
        except ChunkMismatch as error:
            # Only a chunked body can turn out to be longer than what is left of the file.
            if self.version.ends_overlong_upload:
                self.uploads.cancel(upload.owner, upload.id)
            raise InconsistentLength("The upload has more bytes than its length.") from error

    def _completed(self, upload: Upload) -> Upload:
        """After its last byte: a chunked body tells only here how long the file is."""
        if upload.length is None:
            return self.chunks.declare_length(upload, upload.offset)
        if upload.offset != upload.length:
            raise InconsistentLength(
                f"The upload ends at byte {upload.offset}, but has {upload.length} bytes."
            )
        return upload
