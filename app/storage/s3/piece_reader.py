"""Reads an unfinished file from its pieces; S3 cannot read parts before the upload is completed.

A cell that arrived in pieces keeps them until then: only cells that arrived whole are unreadable.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from io import RawIOBase
from typing import TYPE_CHECKING

from crc32c import crc32c

from app.core.cells import Piece, StoredFile, covers, overlay
from app.core.errors import StorageFailed
from app.core.ranges import ByteRange
from app.storage.base import BytesLost, has_same_bytes
from app.storage.s3.cells import CellStore
from app.storage.s3.contents import BLOCK_BYTES, crc32c_text

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
        # A cell, and which of its ranges to read from which piece, in order.
        self._known: tuple[int, Sequence[tuple[Piece, ByteRange]]] | None = None
        self._source: tuple[Piece, RawIOBase] | None = None

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position relative to the start, the current position or the end."""
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            offset += self._length
        self._position = offset
        return self._position

    def close(self) -> None:
        """Close the connection."""
        self._let_go()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read from one piece, or zeros up to the next one; 0 at the end."""
        target = memoryview(buffer).cast("B")
        end = min(self._position + len(target), self._length)
        if end <= self._position:
            return 0
        cell = next(self._file.grid.cells(ByteRange(self._position, end)))
        number, span = cell.number, cell.span
        if self._known is None or self._known[0] != number:
            pieces = self._cells.catalog.pieces(self._file.key, number)
            self._known = number, overlay(pieces, self._file.cell(number).span)
        taken = self._known[1]
        index = bisect_right(taken, span.start, key=lambda each: each[1].end)
        if index < len(taken) and taken[index][1].start <= span.start:
            piece, found = taken[index]
            count = self._read_piece(piece, ByteRange(span.start, min(found.end, span.end)), target)
        elif self._cells.catalog.part(self._file.key, number) is not None:
            raise StorageFailed("These bytes can be read once the file is complete.")
        else:
            end = span.end if index == len(taken) else min(taken[index][1].start, span.end)
            count = end - span.start
            target[:count] = bytes(count)
        self._position += count
        return count

    @property
    def _length(self) -> int:
        """The declared length; without one, the end of the last piece."""
        if self._end is None:
            loose = self._cells.catalog.loose(self._file.key)
            self._end = max((piece.span.end for piece in loose), default=0)
        return self._end

    def _read_piece(self, piece: Piece, span: ByteRange, target: memoryview) -> int:
        """Read bytes at the start of `span`; keeps the object open for the next read."""
        inside = ByteRange(span.start - piece.span.start, span.end - piece.span.start)
        try:
            if self._source is None or self._source[0] != piece:
                self._let_go()
                source = self._cells.bucket.open(piece.name, inside, piece.span.length)
                self._source = piece, source
            source = self._source[1]
            source.seek(inside.start)
            return source.readinto(target[: inside.length]) or 0
        except FileNotFoundError as error:
            raise BytesLost(piece.name) from error

    def _let_go(self) -> None:
        if self._source is not None:
            self._source[1].close()
        self._source = None


def contains(cells: CellStore, file: StoredFile, start: int, ours: RawIOBase, length: int) -> bool:
    """Whether the stored bytes of a file from `start` on are the next `length` bytes of `ours`.

    A cell that arrived whole is compared by its checksum. A part of such a cell cannot be read
    before the file is complete, and counts as equal.
    """
    for cell in file.grid.cells(ByteRange(start, start + length)):
        part = cells.catalog.part(file.key, cell.number)
        is_whole = part is not None and cell.span.length == part.length
        if part is not None and is_whole and part.stamp.crc32c:
            if crc32c_of_stream(ours, part.length) != part.stamp.crc32c:
                return False
            continue
        if part is not None and not covers(cells.catalog.pieces(file.key, cell.number), cell.span):
            ours.seek(cell.span.length, io.SEEK_CUR)
            continue
        with PieceReader(cells, file) as stored:
            stored.seek(cell.span.start)
            if not has_same_bytes(ours, stored, cell.span.length):
                return False
    return True


def crc32c_of_stream(file: RawIOBase, length: int) -> str:
    """Returns the CRC32C of the next `length` bytes, in S3's format."""
    value = 0
    while length:
        block = file.read(min(length, BLOCK_BYTES))
        if not block:
            break
        value = crc32c(block, value)
        length -= len(block)
    return crc32c_text(value)
