"""Direct uploads: clients send cells to the bucket, the server signs, checks and records them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.core.cells import CellOffer, Grid, PromisedCell
from app.core.errors import NotDirect
from app.core.lifecycle import UploadState
from app.core.upload import Upload, UploadKind
from app.storage.base import BytesLost
from app.uploads.chunks import Chunks

if TYPE_CHECKING:
    from app.storage.s3.direct import DirectCells

SMALLEST_BYTES = 5 * 1024 * 1024
"""Shorter files go through the server: four extra requests would cost more than the bytes."""


class DirectUploads:
    """Accepts cells that never pass through this machine, by the same rules as chunks.

    `origin` is the bucket's, to which browsers send them.
    """

    def __init__(self, cells: DirectCells, chunks: Chunks, *, origin: str) -> None:
        self.origin = origin
        self._cells = cells
        self._chunks = chunks

    def cell_bytes(self, upload: Upload) -> int | None:
        """Size of the cells that may be sent to the bucket; None if none may be."""
        is_taking = upload.state is UploadState.RECEIVING
        if not is_taking or upload.kind is UploadKind.CONCATENATION or upload.length is None:
            return None
        return Grid.of(upload.length).cell_bytes if upload.length >= SMALLEST_BYTES else None

    def offers(self, upload: Upload, promised: Sequence[PromisedCell]) -> list[CellOffer]:
        """What to do with each of the cells.

        Raises `NotDirect`, and what `Chunks.append` raises before it takes bytes.
        """
        missing = self._missing(upload, promised)
        if missing and self.cell_bytes(upload) is None:
            raise NotDirect("Send the bytes of this upload to the server.")
        self._chunks.reserve(upload, sum(each.span.length for each in missing))
        with _through_server():
            found = iter(self._cells.offers(upload.id, missing) if missing else [])
        return [next(found) if each in missing else CellOffer(is_stored=True) for each in promised]

    def accept(self, upload: Upload, promised: Sequence[PromisedCell]) -> Upload:
        """The upload once it has these cells; whichever request brings the last one completes it.

        Raises `CellNotStored` if the bucket lacks any of them; then none counts.
        """
        missing = self._missing(upload, promised)
        if missing:
            with _through_server():
                self._cells.accept(upload.id, missing)
        return self._chunks.note_stored(upload, [each.span for each in missing])

    def _missing(self, upload: Upload, promised: Sequence[PromisedCell]) -> list[PromisedCell]:
        for each in promised:
            self._chunks.check(upload, each.span)
        is_taking = upload.require_present().state is UploadState.RECEIVING
        return [each for each in promised if is_taking and not upload.received.covers(each.span)]


@contextmanager
def _through_server() -> Iterator[None]:
    """Fall back to `Chunks` if the store lost the file, or its grid differs."""
    try:
        yield
    except BytesLost as error:
        raise NotDirect("Send the bytes of this upload to the server.") from error
