"""Direct uploads: clients send cells to the bucket; the server signs, checks and records them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.core.errors import CellNotStored, NotDirect
from app.core.lifecycle import UploadState
from app.core.pieces import CellOffer, PromisedCell, piece_bytes
from app.core.upload import Upload, UploadKind
from app.records.uploads import UploadRecords
from app.storage.base import BytesLost, DirectCells
from app.uploads.chunks import Chunks

SMALLEST_BYTES = 5 * 1024 * 1024
"""Shorter files go through the server: four extra requests cost more than sending the bytes."""


class DirectUploads:
    """Accepts cells that do not pass through the server, by the same rules as chunks.

    `origin` is the bucket's origin, to which browsers send the cells.
    """

    def __init__(self, cells: DirectCells, chunks: Chunks, records: UploadRecords) -> None:
        self.origin = cells.origin
        self._records = records
        self._cells = cells
        self._chunks = chunks

    def cell_bytes(self, upload: Upload) -> int | None:
        """Size of the cells that clients may send to the bucket; None if they may send none."""
        is_taking = upload.state is UploadState.RECEIVING
        if not is_taking or upload.kind is UploadKind.CONCATENATION or upload.length is None:
            return None
        return piece_bytes(upload.length) if upload.length >= SMALLEST_BYTES else None

    def offers(self, upload: Upload, promised: Sequence[PromisedCell]) -> list[CellOffer]:
        """Returns, for each cell, whether it is stored and where to send it otherwise.

        Raises `NotDirect`, and the errors that `Chunks.append` raises before it reads bytes.
        """
        missing = self._missing(upload, promised)
        if missing and self.cell_bytes(upload) is None:
            raise NotDirect("Send the bytes of this upload to the server.")
        self._chunks.reserve(upload, sum(each.span.length for each in missing))
        with _through_server():
            found = iter(self._cells.offers(upload.id, missing) if missing else [])
        return [next(found) if each in missing else CellOffer(is_stored=True) for each in promised]

    def accept(self, upload: Upload, promised: Sequence[PromisedCell]) -> Upload:
        """Record cells that the bucket has; the request with the last one completes the upload.

        Returns the updated upload. Raises `CellNotStored` if the bucket lacks any of the cells;
        then none is recorded. Repeatable, also while an earlier call still runs.
        """
        missing = self._missing(upload, promised)
        while True:
            try:
                with _through_server():
                    stored = self._cells.accept(upload.id, missing) if missing else []
                    return self._chunks.note_stored(upload, stored)
            except (CellNotStored, NotDirect):
                upload = self._records.get(upload.id)
                left = self._missing(upload, promised)
                if len(left) == len(missing):
                    raise
                missing = left  # Another request has recorded the others.

    def _missing(self, upload: Upload, promised: Sequence[PromisedCell]) -> list[PromisedCell]:
        for each in promised:
            self._chunks.check(upload, each.span)
        is_taking = upload.require_present().state is UploadState.RECEIVING
        return [each for each in promised if is_taking and not upload.received.covers(each.span)]


@contextmanager
def _through_server() -> Iterator[None]:
    """Fall back to `Chunks` if the store lost the file, or it is one object already."""
    try:
        yield
    except BytesLost as error:
        raise NotDirect("Send the bytes of this upload to the server.") from error
