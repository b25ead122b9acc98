"""Files that consist mostly of parts of another file, by reference instead of as copies.

The stored form, all numbers unsigned 64-bit little-endian:

    the literal bytes of all pieces, one after the other
    for each piece: its position in the virtual file, and where its bytes are
    the length of the virtual file, the number of pieces, `MAGIC`

The location of its bytes is an offset into the source, or, with the highest bit set, into the
stored form.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from io import FileIO
from itertools import accumulate
from operator import sub
from typing import BinaryIO, Self

from app.core.ranges import ByteRange
from app.video.index.boxes import NotIndexable

Piece = bytes | ByteRange
"""Literal bytes, or a range of the source."""

MAGIC = b"sluicev1"

MOST_BYTES = 1 << 62
"""Maximum length of a virtual file, and maximum offset."""

_IS_LITERAL = 1 << 63
_TRAILER = struct.Struct("<QQ8s")
_ENTRY = struct.Struct("<QQ")
_ENTRIES_AT_ONCE = 4096
_LITERAL_BYTES_AT_ONCE = 256 << 10


class VirtualFileWriter:
    """Writes the stored form; keeps 16 bytes per piece in memory."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._entries = array("Q")
        self._literal_bytes = 0
        self._source_end = -1
        self.position = 0
        """Current length of the virtual file, in bytes."""

    def add(self, piece: Piece) -> None:
        """Append a piece; raises `NotIndexable` if the file exceeds `MOST_BYTES`."""
        if isinstance(piece, ByteRange):
            if piece.length == 0:
                return
            self._require_room(max(piece.end, self.position + piece.length))
            if piece.start != self._source_end:
                self._entries.extend((self.position, piece.start))
            self._source_end = piece.end
            self.position += piece.length
        elif piece:
            self._require_room(self.position + len(piece))
            if self._source_end >= 0 or not self._entries:  # else it extends the last entry
                self._entries.extend((self.position, self._literal_bytes | _IS_LITERAL))
            self._target.write(piece)
            self._literal_bytes += len(piece)
            self._source_end = -1
            self.position += len(piece)

    def extend(self, pieces: Iterable[Piece]) -> None:
        """Append several."""
        for piece in pieces:
            self.add(piece)

    def add_ranges(self, starts: array[int], ends: array[int]) -> None:
        """Append ranges of the source that are not adjacent; faster than one by one."""
        if not starts:
            return
        lengths = map(sub, ends, starts)
        positions = array("Q", accumulate(lengths, initial=self.position))
        end = positions.pop()
        self._require_room(max(*ends, end))
        skipped = 1 if starts[0] == self._source_end else 0
        block = array("Q", bytes(16 * (len(starts) - skipped)))
        block[0::2], block[1::2] = positions[skipped:], starts[skipped:]
        self._entries += block
        self._source_end = ends[-1]
        self.position = end

    def finish(self) -> None:
        """Write the table, after the last piece; the target stays open."""
        for start in range(0, len(self._entries), 2 * _ENTRIES_AT_ONCE):
            numbers = self._entries[start : start + 2 * _ENTRIES_AT_ONCE]
            self._target.write(struct.pack(f"<{len(numbers)}Q", *numbers))
        self._target.write(_TRAILER.pack(self.position, len(self._entries) // 2, MAGIC))

    @staticmethod
    def _require_room(end: int) -> None:
        if end > MOST_BYTES:
            raise NotIndexable("too_long", "The file claims to be longer than any file can be.")


class StoredVirtualFile:
    """A virtual file in its stored form. Thread-safe."""

    def __init__(self, file: FileIO) -> None:
        """Take ownership of an open file; raises `ValueError` if it is not a virtual file."""
        self._file = file
        self._descriptor = file.fileno()
        size = os.fstat(self._descriptor).st_size
        trailer = os.pread(self._descriptor, _TRAILER.size, max(size - _TRAILER.size, 0))
        self._table = -1
        if len(trailer) == _TRAILER.size and trailer.endswith(MAGIC):
            self.length, self._count, _ = _TRAILER.unpack(trailer)
            self._table = size - _TRAILER.size - self._count * _ENTRY.size
        if self._table < 0:
            self.close()
            raise ValueError("not a virtual file, or its table is longer than itself")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stored form."""
        self._file.close()

    def pieces(self, span: ByteRange) -> Iterator[Piece]:
        """Yields the pieces of `span`, which must be inside the file, in order.

        Reads only the entries and the literal bytes of `span`, and the literal bytes lazily, in
        parts of at most 256 KiB.
        """
        if span.end > self.length:
            raise ValueError(f"{span} is not within {self.length} bytes")
        if span.length == 0:
            return
        first = bisect_right(range(self._count), span.start, key=self._position) - 1
        for (start, where), end in self._entries(first):
            if start >= span.end:
                return
            skipped = max(span.start - start, 0)
            place, length = where + skipped, min(end, span.end) - start - skipped
            if not where & _IS_LITERAL:
                yield ByteRange(place, place + length)
                continue
            for at in range(0, length, _LITERAL_BYTES_AT_ONCE):
                count = min(_LITERAL_BYTES_AT_ONCE, length - at)
                yield os.pread(self._descriptor, count, (place ^ _IS_LITERAL) + at)

    def _position(self, number: int) -> int:
        """Where a piece begins in the virtual file; read on each call."""
        data = os.pread(self._descriptor, 8, self._table + number * _ENTRY.size)
        return int.from_bytes(data, "little")

    def _entries(self, first: int) -> Iterator[tuple[tuple[int, int], int]]:
        """Yields the entries from `first` on, each with the end of its piece."""
        before: tuple[int, int] | None = None
        for number in range(first, self._count, _ENTRIES_AT_ONCE):
            count = min(_ENTRIES_AT_ONCE, self._count - number)
            place = self._table + number * _ENTRY.size
            for entry in _ENTRY.iter_unpack(os.pread(self._descriptor, count * _ENTRY.size, place)):
                if before is not None:
                    yield before, entry[0]
                before = entry
        if before is not None:
            yield before, self.length
