"""Layout of a file in an object store: a grid of cells, each one part, and pieces of cells.

S3 takes parts of 5 MiB or more, at most 10,000 of them, each in one request; uploads here arrive in
ranges of any size and order. A cell that arrives completely becomes a part at once. Less than a
cell becomes a *piece*, an object of its own, until the rest of its cell has arrived.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.core.crc32c import joined_crc32c
from app.core.errors import InvalidRequest
from app.core.ranges import ByteRange, RangeSet

MIB = 1024 * 1024

SMALLEST_CELL_BYTES = 20 * MIB
"""The page's chunk size. Smaller requests cost as much at the store."""

MOST_CELLS = 3333
"""A third of the 10,000 parts that S3 allows: each cell has three part numbers."""

NUMBERS_PER_CELL = 3

CRC32C_BYTES = 4

URL_SECONDS = 15 * 60
"""How long the signed URL of a cell is valid. A request that started in time may take longer."""

GROWTH_SHARE = 8
"""Pieces are joined only if the longest of them has at most seven eighths of their bytes."""

GROWING_CELLS = ((1000, 20 * MIB), (1333, 128 * MIB), (1000, 1024 * MIB))
"""Runs of cells, as count and size, for files of unknown length: 1.2 TiB in all."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its number, counted from 0, and its bytes of the file."""

    number: int
    span: ByteRange


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of `cell_bytes` each; with 0, those of `GROWING_CELLS`."""

    cell_bytes: int

    @classmethod
    def of(cls, length: int | None, *, smallest: int = SMALLEST_CELL_BYTES) -> Grid:
        """The grid of a file; `length` in bytes, None if it is not known yet."""
        if length is None:
            return cls(0)
        return cls(max(smallest, -(-length // MOST_CELLS)))

    @property
    def capacity(self) -> int:
        """The maximum file length, in bytes."""
        return sum(count * size for count, size in self._sections)

    @property
    def first_bytes(self) -> int:
        """Length of the first cell; a file up to it is one object, without parts."""
        return self._sections[0][1]

    def largest_bytes(self, length: int) -> int:
        """Length of the largest cell of a file that has at most `length` bytes."""
        largest, start = 0, 0
        for count, size in self._sections:
            if start < length:
                largest = size
            start += count * size
        return largest

    def cells(self, span: ByteRange) -> Iterator[Cell]:
        """The cells that overlap `span`, each clipped to it."""
        for cell in self._all_from(span.start):
            if cell.span.start >= span.end:
                return
            start, end = max(cell.span.start, span.start), min(cell.span.end, span.end)
            yield Cell(cell.number, ByteRange(start, end))

    def cell(self, number: int, length: int | None) -> Cell:
        """The whole cell, clipped to the file's length; raises `ValueError` beyond the grid."""
        left, start = number, 0
        for count, size in self._sections:
            if left < count:
                start += left * size
                end = start + size if length is None else min(start + size, max(start, length))
                return Cell(number, ByteRange(start, end))
            left, start = left - count, start + count * size
        raise ValueError(f"no cell has the number {number}")

    @property
    def _sections(self) -> tuple[tuple[int, int], ...]:
        return ((MOST_CELLS, self.cell_bytes),) if self.cell_bytes else GROWING_CELLS

    def _all_from(self, position: int) -> Iterator[Cell]:
        number, start = 0, 0
        for count, size in self._sections:
            skipped = min(count, max(0, position - start) // size)
            for index in range(skipped, count):
                begin = start + index * size
                yield Cell(number + index, ByteRange(begin, begin + size))
            number, start = number + count, start + count * size


def part_number(cell: int, epoch: int) -> int:
    """The part number, from 1, under which the claim with this epoch uploads a cell.

    Consecutive claims use different numbers, so a process that was paused while uploading and
    resumes late does not overwrite its successor's part.
    """
    return cell * NUMBERS_PER_CELL + 1 + epoch % (NUMBERS_PER_CELL - 1)


def direct_part_number(cell: int) -> int:
    """The number under which clients upload a cell to the bucket themselves.

    No claim uses it, so no use of a signed URL can overwrite our own parts.
    """
    return (cell + 1) * NUMBERS_PER_CELL


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies bytes that the store has confirmed: its ETag, and their CRC32C in base64.

    The CRC32C has four bytes, big-endian; it is empty if the store returned none.
    """

    etag: str
    crc32c: str


@dataclass(frozen=True, slots=True)
class Piece:
    """An object with some bytes of one cell; where two overlap, the higher id wins."""

    id: int
    cell: int
    span: ByteRange
    name: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class PieceTotals:
    """Number and total length of a cell's pieces; bytes in two pieces count twice."""

    count: int
    length: int


@dataclass(frozen=True, slots=True)
class Part:
    """A stored cell: the part of a multipart upload with all of its `length` bytes.

    It includes the bytes of all pieces with ids up to `through`.
    """

    cell: int
    number: int
    length: int
    stamp: Stamp
    through: int


def unread_crc32c(parts: Sequence[Part]) -> str | None:
    """The CRC32C of a file, from those of all its parts; None if its bytes passed through us."""
    is_direct = any(part.number == direct_part_number(part.cell) for part in parts)
    if not is_direct or not all(part.stamp.crc32c for part in parts):
        return None
    return joined_crc32c((part.length, part.stamp.crc32c) for part in parts)


@dataclass(frozen=True, slots=True)
class PromisedCell:
    """A cell that a client is about to upload directly to the bucket; `crc32c` as in `Stamp`."""

    span: ByteRange
    crc32c: str


def check_crc32c(text: str) -> str:
    """A CRC32C as S3 writes it; raises `InvalidRequest` unless it is four bytes in base64."""
    if not is_crc32c(text):
        raise InvalidRequest("A CRC32C must be four bytes, the highest first, in base64.")
    return text


def is_crc32c(text: str) -> bool:
    """Whether this is S3's form of a CRC32C: base64 allows other texts for the same bytes."""
    try:
        found = b64decode(text, validate=True)
    except ValueError:
        return False
    return len(found) == CRC32C_BYTES and b64encode(found).decode() == text


@dataclass(frozen=True, slots=True)
class CellTarget:
    """The signed request that uploads a cell; the bucket refuses any other bytes."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CellOffer:
    """What to do with a cell: nothing if it is stored, otherwise send it to `target`.

    Without a `target`, send it to the server.
    """

    is_stored: bool = False
    target: CellTarget | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to upload one cell, until the lease ends; `token` proves it at the commit."""

    key: str
    cell: int
    token: str
    number: int
    through: int


@dataclass(frozen=True, slots=True)
class Multipart:
    """A multipart upload, and the object that will come from it."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The catalog's row of a file.

    `length` is the declared one, None if there is none. `name` is the object that holds the whole
    file, once it exists; `is_published` says that it may be read. `crc32c` is set once the file is
    one object, if clients have sent some of its cells directly to the bucket.
    """

    key: str
    grid: Grid
    length: int | None
    name: str | None
    is_published: bool
    multipart: Multipart | None
    crc32c: str | None = None

    def cell(self, number: int) -> Cell:
        """A whole cell, clipped to the file's length."""
        return self.grid.cell(number, self.length)

    @property
    def is_one_object(self) -> bool:
        """Whether the file is known to fit into one cell, so that it needs no parts."""
        return self.length is not None and self.length <= self.grid.first_bytes


UNKNOWN_ID = ""
"""Placeholder for ids of multipart uploads whose creator may have crashed before recording them."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object to be deleted; with `multipart_id`, a multipart upload to be aborted."""

    id: int
    name: str
    multipart_id: str | None


def overlay(pieces: Iterable[Piece], span: ByteRange) -> list[tuple[Piece, ByteRange]]:
    """Which bytes of `span` to take from which piece, in order; the later piece wins."""
    taken, found = RangeSet(), list[tuple[Piece, ByteRange]]()
    for piece in sorted(pieces, key=lambda each: each.id, reverse=True):
        start, end = max(span.start, piece.span.start), min(span.end, piece.span.end)
        if start < end:
            wanted = ByteRange(start, end)
            found += ((piece, gap) for gap in taken.gaps(wanted))
            taken = taken.add(wanted)
    return sorted(found, key=lambda each: each[1])


def covers(pieces: Iterable[Piece], span: ByteRange) -> bool:
    """Whether the pieces have every byte of `span`."""
    return RangeSet.of(piece.span for piece in pieces).covers(span)


def joinable(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Groups of adjacent pieces to join: keeps the number of pieces and the copied bytes small.

    A piece is left alone while it is more than seven times as long as all that it would join: n
    bytes without a gap then end up in about n ** 0.25 pieces (67 for 20 MiB) at worst, and in seven
    if they arrived in order. A run in which one piece has all bytes is left alone, too: that piece
    may be about to become the file, and joining deletes it.
    """
    left = [*_runs(pieces)]
    while left:
        run = left.pop()
        longest = max(run, key=lambda piece: piece.span.length)
        others = [piece for piece in run if piece is not longest]
        length = sum(piece.span.length for piece in others)
        has_all = longest.span == span_of(run)
        if others and not has_all and length * (GROWTH_SHARE - 1) >= longest.span.length:
            yield run
        else:
            left += _runs(others)


def span_of(pieces: Sequence[Piece]) -> ByteRange:
    """The range from the first to the last byte of the pieces."""
    start = min(piece.span.start for piece in pieces)
    return ByteRange(start, max(piece.span.end for piece in pieces))


def _runs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """The pieces in order, split at gaps."""
    run, end = list[Piece](), 0
    for piece in sorted(pieces, key=lambda each: each.span):
        if run and piece.span.start > end:
            yield run
            run = []
        run.append(piece)
        end = max(end, piece.span.end) if len(run) > 1 else piece.span.end
    if run:
        yield run
