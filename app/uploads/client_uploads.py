"""Finds uploads by the name the client uses: its own key, or an upload id.

An id identifies its upload in every protocol, regardless of the protocol that created it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from app.core import errors
from app.core.access import Scope
from app.core.lifecycle import UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, parse_upload_id
from app.ingest.slots import without_slot
from app.uploads.chunks import Chunks
from app.uploads.library import VideoLibrary
from app.uploads.service import NewUpload, UploadService

RESTART_SECONDS = 5.0
"""How long a later chunk waits until the first chunk restarts an upload that has ended."""

RESTART_TICK_SECONDS = 0.05
"""Poll interval while it waits."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A client's description of one chunk; offset, length and total in bytes.

    `filename` is empty if the client does not name the file. `identifier` is the value the client
    sent, if `key` is derived from it. If `restarts`, the first chunk of a file restarts an upload
    that has ended.
    """

    key: str
    offset: int
    length: int
    total: int
    filename: str = ""
    identifier: str = ""
    restarts: bool = False

    @property
    def span(self) -> ByteRange:
        """The chunk's range in the file."""
        return ByteRange(self.offset, self.offset + self.length)


class ClientUploads:
    """Finds, creates and removes uploads for clients that choose their own keys."""

    def __init__(self, uploads: UploadService, chunks: Chunks, library: VideoLibrary) -> None:
        self._uploads = uploads
        self._chunks = chunks
        self._library = library

    def called(self, scope: Scope, key: str) -> Upload:
        """The upload with this key, of any length; raises `UploadNotFound` or `UploadGone`."""
        upload = self._by_id(scope, key) or self._uploads.called(scope, key)
        if upload is None:
            raise errors.UploadNotFound("No upload has this key.")
        return upload

    def find(self, scope: Scope, chunk: Chunk) -> Upload | None:
        """The chunk's upload; raises `UploadConflict` if its length differs, and `UploadGone`."""
        upload = self._by_id(scope, chunk.identifier or chunk.key)
        if upload is None:
            return self._uploads.find(scope, chunk.key, chunk.total)
        upload.require_length(chunk.total)
        return upload

    def of_chunk(self, scope: Scope, chunk: Chunk, filename: str) -> Upload:
        """Returns the upload the chunk belongs to; the first chunk to arrive creates it.

        If the chunk `restarts`, the first bytes of a file restart an upload that has ended. Later
        chunks do not: their client relies on bytes that were lost with the old upload, and must get
        an error. Raises `UploadConflict` if the upload's length differs, `UploadGone` if it has
        ended, and the errors of `UploadService.create`.
        """
        if not chunk.restarts:
            return self._found_or_created(scope, chunk, filename)
        self._by_id(scope, chunk.identifier)  # Raises: an upload addressed by id never restarts.
        deadline = time.monotonic() + RESTART_SECONDS
        while True:
            try:
                return self._found_or_created(scope, chunk, filename)
            except errors.UploadGone:
                if time.monotonic() > deadline:
                    raise
            if chunk.offset == 0:
                self._uploads.release_key(scope, chunk.key)
            else:
                with without_slot():
                    time.sleep(RESTART_TICK_SECONDS)

    def _found_or_created(self, scope: Scope, chunk: Chunk, filename: str) -> Upload:
        upload = self.find(scope, chunk)
        if upload is None:
            new = NewUpload(
                scope=scope, filename=filename, length=chunk.total, client_key=chunk.key
            )
            return self._uploads.create(new)[0]
        if upload.length is None:
            return self._chunks.declare_length(upload, chunk.total)
        return upload

    def probe(self, scope: Scope, chunk: Chunk) -> tuple[Upload | None, bool]:
        """Returns the chunk's upload, if any, and whether it has every byte of the chunk.

        An empty file has its single chunk once it is complete.
        """
        try:
            upload = self.find(scope, chunk)
        except errors.UploadGone:
            return None, False
        if upload is None:
            return None, False
        if chunk.length == 0 and upload.state is UploadState.RECEIVING:
            return upload, False
        return upload, upload.received.covers(chunk.span)

    def remove(self, scope: Scope, upload: Upload) -> Upload:
        """Cancel the upload, or delete the video it has become; returns it as it was before.

        Raises `NotAllowed` for a video that its sender may not delete.
        """
        try:
            return self._uploads.cancel(scope, upload.id)
        except errors.UploadComplete as error:
            if not scope.may_delete:
                raise errors.NotAllowed("The file has arrived: you may not delete it.") from error
            return self._library.delete(scope, upload.id)

    def _by_id(self, scope: Scope, text: str) -> Upload | None:
        try:
            return self._uploads.get(scope, parse_upload_id(text))
        except errors.UploadNotFound:
            return None
