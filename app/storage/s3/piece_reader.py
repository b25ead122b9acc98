"""Reads an unfinished file from its pieces; S3 cannot read parts before the upload is completed.

A cell that arrived in pieces keeps them until then, so only cells that arrived whole are hidden.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from io import RawIOBase
from typing import TYPE_CHECKING

from crc32c import crc32c

from app.domain.cells import Piece, StoredFile, overlay
from app.domain.errors import StorageFailed
from app.domain.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.compare import has_same_bytes
from app.storage.s3.cells import CellStore
from app.storage.s3.contents import BLOCK_BYTES, base64_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class PieceReader(io.RawIOBase):
    """A file that is still being received; missing bytes read as zeros.

    Raises `StorageFailed` for bytes that are stored but cannot be read yet.
    """

    def __init__(self, cells: CellStore, file: StoredFile) -> None:
        super().__init__()
        self._cells = cells
        self._file = file
        self._position = 0
        self._end = file.length
        self._known: tuple[int, Sequence[Piece]] | None = None
        self._source: tuple[Piece, RawIOBase] | None = None

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position in the file."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, relative to the start or to the current one."""
        self._position = offset + (self._position if whence == io.SEEK_CUR else 0)
        return self._position

    def close(self) -> None:
        """Close the connection."""
        self._let_go()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read from one piece, or the zeros up to the next; 0 at the end."""
        target = memoryview(buffer).cast("B")
        end = min(self._position + len(target), self._length)
        if end <= self._position:
            return 0
        cell = next(self._file.grid.cells(ByteRange(self._position, end)))
        count = self._read(cell.number, cell.span, target)
        self._position += count
        return count

    @property
    def _length(self) -> int:
        """The declared length; without one, where the last piece ends."""
        if self._end is None:
            loose = self._cells.catalog.loose(self._file.key)
            self._end = max((piece.span.end for piece in loose), default=0)
        return self._end

    def _read(self, number: int, span: ByteRange, target: memoryview) -> int:
        taken = overlay(self._pieces(number), span)
        if not taken or taken[0][1].start > span.start:
            if self._is_hidden(number):
                raise StorageFailed("These bytes can be read once the file is complete.")
            end = taken[0][1].start if taken else span.end
            target[: end - span.start] = bytes(end - span.start)
            return end - span.start
        piece, found = taken[0]
        inside = ByteRange(found.start - piece.span.start, found.end - piece.span.start)
        try:
            return self._opened(piece, inside).readinto(target[: found.length]) or 0
        except FileNotFoundError as error:
            raise BytesLost(piece.name) from error

    def _opened(self, piece: Piece, inside: ByteRange) -> RawIOBase:
        """The object of a piece, at the start of a range."""
        if self._source is None or self._source[0] != piece:
            self._let_go()
            source = self._cells.bucket.open(piece.name, inside, piece.span.length)
            self._source = piece, source
        source = self._source[1]
        source.seek(inside.start)
        return source

    def _let_go(self) -> None:
        if self._source is not None:
            self._source[1].close()
        self._source = None

    def _pieces(self, number: int) -> Sequence[Piece]:
        if self._known is None or self._known[0] != number:
            self._known = number, self._cells.catalog.pieces(self._file.key, number)
        return self._known[1]

    def _is_hidden(self, number: int) -> bool:
        return self._cells.catalog.part(self._file.key, number) is not None


def contains(cells: CellStore, file: StoredFile, start: int, ours: RawIOBase, length: int) -> bool:
    """Whether the stored bytes of a file from `start` on are the next `length` bytes of `ours`.

    A cell that arrived whole is compared by its checksum. Raises `StorageFailed` if only a part of
    such a cell is to be compared.
    """
    for cell in file.grid.cells(ByteRange(start, start + length)):
        part = cells.catalog.part(file.key, cell.number)
        is_whole = part is not None and cell.span.length == part.length
        if part is not None and is_whole and part.stamp.crc32c:
            if crc32c_of_stream(ours, part.length) != part.stamp.crc32c:
                return False
            continue
        with PieceReader(cells, file) as stored:
            stored.seek(cell.span.start)
            if not has_same_bytes(ours, stored, cell.span.length):
                return False
    return True


def crc32c_of_stream(file: RawIOBase, length: int) -> str:
    """The CRC32C of the next `length` bytes, as S3 writes it."""
    value = 0
    while length:
        block = file.read(min(length, BLOCK_BYTES))
        if not block:
            break
        value = crc32c(block, value)
        length -= len(block)
    return base64_of(value.to_bytes(4, "big"))
