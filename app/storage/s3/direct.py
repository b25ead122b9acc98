"""Direct uploads: clients put cells into the bucket as pieces, with URLs signed here.

A URL stores one object with a fixed length and CRC32C, under a name that is announced and never
used again. The object counts once its row is added, which needs the announcement. A file is never
published with such an object, which a client could replace as long as its URL is valid: its bytes
are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from app.core.crc32c import from_base64
from app.core.errors import CellNotStored, ChunkMismatch
from app.core.pieces import (
    URL_SECONDS,
    CellOffer,
    CellTarget,
    Piece,
    PromisedCell,
    StoredFile,
    piece_bytes,
)
from app.core.ranges import ByteRange
from app.storage.base import AddRows, BytesLost
from app.storage.s3.assembly import Assembly
from app.storage.s3.catalog import DIRECT
from app.storage.s3.pieces import PieceStore, new_name

OFFERS_AT_ONCE = 4
"""Most URLs of one cell that are valid at the same time; each may store an object."""

HEADS_AT_ONCE = 8
"""Number of objects that a process looks up in parallel."""


class BucketCells:
    """Implements `DirectCells`."""

    def __init__(self, pieces: PieceStore, assembly: Assembly) -> None:
        self._pieces = pieces
        self._assembly = assembly
        self.origin = pieces.bucket.caller.address.origin
        self._catalog = pieces.catalog
        self._looking = ThreadPoolExecutor(HEADS_AT_ONCE, thread_name_prefix="head")

    def offers(self, key: str, promised: Sequence[PromisedCell]) -> list[CellOffer]:
        """Sign a URL for each cell."""
        file = self._catalog.require_open(key)
        _require_cells(file, promised)
        self._catalog.touch(key, URL_SECONDS)
        offers = []
        for each in promised:
            if len(self._catalog.announced(_prefix(key, each.span))) >= OFFERS_AT_ONCE:
                offers.append(CellOffer())
                continue
            name = new_name(_prefix(key, each.span), f"{from_base64(each.crc32c):08x}")
            self._catalog.announce(key, name, seconds=URL_SECONDS)
            url, headers = self._pieces.bucket.presign_put(
                name, each.span.length, each.crc32c, URL_SECONDS
            )
            offers.append(CellOffer(target=CellTarget(url, headers)))
        return offers

    def accept(
        self, key: str, promised: Sequence[PromisedCell]
    ) -> list[tuple[ByteRange, int, AddRows]]:
        """Look all cells up in the bucket."""
        file = self._catalog.require_open(key)
        _require_cells(file, promised)
        pieces = [*self._looking.map(partial(self._stored, key), promised)]
        for each in promised:
            self._assembly.note(file, each.span)
        return [
            (
                piece.span,
                from_base64(piece.crc32c),
                partial(self._catalog.add, key=key, found=[piece]),
            )
            for piece in pieces
        ]

    def _stored(self, key: str, promised: PromisedCell) -> Piece:
        """The object with a cell; the newest of several offers is looked up first."""
        prefix = f"{_prefix(key, promised.span)}{from_base64(promised.crc32c):08x}."
        for name in reversed(self._catalog.announced(prefix)):
            found = self._pieces.bucket.head(name)
            if found is not None and found.length == promised.span.length:
                return Piece(0, promised.span, name, promised.crc32c)
        raise CellNotStored(f"The bucket does not have the cell at {promised.span.start}.")


def _prefix(key: str, span: ByteRange) -> str:
    """The start of an object's name. The CRC32C of its bytes follows, then a token."""
    return f"{DIRECT}{key}.{span.start}-{span.end}."


def _require_cells(file: StoredFile, promised: Sequence[PromisedCell]) -> None:
    """Raise `ChunkMismatch` unless these are cells, each named once.

    Raises `BytesLost` if the file has no length yet.
    """
    if file.length is None:
        raise BytesLost(file.key)
    size, spans = piece_bytes(file.length), [each.span for each in promised]
    for span in spans:
        if span.start % size or span.end != min(span.start + size, file.length):
            raise ChunkMismatch(f"The {span.length} bytes at {span.start} are no cell.")
    if len({*spans}) < len(spans):
        raise ChunkMismatch("A cell is named twice.")
