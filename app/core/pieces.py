"""Layout of a file in an object store: pieces, which later become the parts of one object.

A piece is an immutable object with one range of the file, and a row that says so. Where pieces
overlap, the oldest row wins, so no byte changes once it is acknowledged. S3 makes one object of
them in parts of 5 MiB or more, at most 10,000.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.core.errors import InvalidRequest
from app.core.ranges import ByteRange, RangeSet

MIB = 1024 * 1024

SMALLEST_PART_BYTES = 5 * MIB
"""Smallest part that S3 accepts, except for the last one."""

PIECE_BYTES = 20 * MIB
"""The page's chunk size. Smaller requests cost as much at the store."""

MOST_LONG_PIECES = 5000
MOST_EQUAL_PARTS = 9000
"""Pieces of long files are longer, and shorter ones are collected: see `piece_bytes`, `part_bytes`.
Each part but the last has at least a 9000th of the file, so their number stays below 10,000."""

GROWTH_SHARE = 1000
MOST_PIECE_BYTES = 1024 * MIB
"""Without a declared length, a piece has at most this share of the bytes before it, and never more
than this: 5 TiB, the limit of S3, then need some 9,200 pieces."""

CRC32C_BYTES = 4

URL_SECONDS = 15 * 60
"""How long a signed URL is valid. A request that started in time may take longer."""


def piece_bytes(length: int | None, position: int = 0) -> int:
    """The longest piece from `position` on, for a file of `length` bytes; None if not known yet."""
    if length is not None:
        return max(PIECE_BYTES, -(-length // MOST_LONG_PIECES))
    return max(PIECE_BYTES, min(MOST_PIECE_BYTES, position // GROWTH_SHARE))


def part_bytes(length: int) -> int:
    """The shortest part of a file of `length` bytes, except for its last one."""
    return max(SMALLEST_PART_BYTES, -(-length // MOST_EQUAL_PARTS))


def spans_of_pieces(span: ByteRange, length: int | None) -> Iterator[ByteRange]:
    """Splits a range of a file of `length` bytes into pieces; none is much shorter than others."""
    start = span.start
    while start < span.end:
        most, left = piece_bytes(length, start), span.end - start
        size = left if left <= most else min(most, left - left // 2)
        yield ByteRange(start, start + size)
        start += size


@dataclass(frozen=True, slots=True)
class Checksums:
    """What the store has confirmed of some bytes: their ETag, and their CRC32C in base64.

    The CRC32C has four bytes, big-endian; it is empty if the store returned none.
    """

    etag: str
    crc32c: str


@dataclass(frozen=True, slots=True)
class Piece:
    """An object with some bytes of a file; where two overlap, the lower id wins.

    `id` is 0 before the piece is recorded. `crc32c` is that of the whole object, in base64.
    """

    id: int
    span: ByteRange
    name: str
    crc32c: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the multipart upload, up to the byte `end` of the file."""

    number: int
    end: int
    checksums: Checksums


@dataclass(frozen=True, slots=True)
class Multipart:
    """A multipart upload, and the object that will come from it."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The catalog's row of a file.

    `length` is the declared one, None if there is none. `name` is the object that holds the whole
    file, once it exists; `is_published` says that it may be read.
    """

    key: str
    length: int | None
    name: str | None
    is_published: bool
    multipart: Multipart | None


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object to be deleted; with `multipart_id`, a multipart upload to be aborted."""

    id: int
    name: str
    multipart_id: str | None


UNKNOWN_ID = ""
"""Placeholder for ids of multipart uploads whose creator may have crashed before recording them."""

Taken = tuple[Piece, ByteRange]
"""A piece, and which bytes of the file to take from it."""


def overlay(pieces: Iterable[Piece], span: ByteRange) -> list[Taken]:
    """Which bytes of `span` to take from which piece, in order; the older piece wins."""
    taken, found = RangeSet(), list[Taken]()
    for piece in sorted(pieces, key=lambda each: each.id):
        start, end = max(span.start, piece.span.start), min(span.end, piece.span.end)
        if start < end:
            wanted = ByteRange(start, end)
            found += ((piece, gap) for gap in taken.gaps(wanted))
            taken = taken.add(wanted)
    return sorted(found, key=lambda each: each[1])


def is_whole(taken: Taken) -> bool:
    """Whether all bytes of the piece are taken."""
    return taken[0].span == taken[1]


def planned_parts(
    taken: Iterable[Taken], start: int, *, least: int, length: int
) -> Iterator[list[Taken]]:
    """Groups adjacent ranges into the parts of an object, from the byte `start` to the first gap.

    A piece of at least `least` bytes is a part of its own, which the store can copy. Shorter ones
    are collected into parts of about `PIECE_BYTES`, and one whose neighbours are too short for a
    part is collected with them. Unless they reach `length`, the last bytes are left out: more may
    follow.
    """
    group, size, end = list[Taken](), 0, start
    for each in taken:
        piece, span = each
        if span.start != end:
            return
        is_long = is_whole(each) and piece.span.length >= least
        if group and size >= least and (is_long or size >= PIECE_BYTES):
            yield group
            group, size = [], 0
        group.append(each)
        size, end = size + span.length, span.end
        if is_long and len(group) == 1:
            yield group
            group, size = [], 0
    if group and end == length:
        yield group


# ---- straight to the bucket ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromisedCell:
    """Bytes that a client is about to store in the bucket itself; `crc32c` as in `Checksums`.

    A cell is as long as the longest piece of its file, and begins at a multiple of that.
    """

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
    """The signed request that stores a cell; the bucket refuses any other bytes."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CellOffer:
    """What to do with a cell: nothing if it is stored, otherwise send it to `target`.

    Without a `target`, send it to the server.
    """

    is_stored: bool = False
    target: CellTarget | None = None


def span_of(group: Sequence[Taken]) -> ByteRange:
    """The bytes of adjacent ranges."""
    return ByteRange(group[0][1].start, group[-1][1].end)
