"""Boxes: the units an MP4 or MOV file is made of (ISO/IEC 14496-12, section 4.2)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

ReadAt = Callable[[int, int], bytes]
"""Takes an offset into the file and a number of bytes, and returns them; fewer at its end."""

MAX_BOXES_IN_A_BOX = 10_000
"""Further children of a box are ignored."""

MAX_TOP_LEVEL_BOXES = 500_000
"""A file with more is not indexed. A fragment takes two: enough for 70 h of 1 s fragments."""

LARGEST_32_BIT = 0xFFFF_FFFF
LARGEST_64_BIT = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Box:
    """A box in memory."""

    kind: bytes
    payload: memoryview
    raw: memoryview
    """The payload and the header before it."""


@dataclass(frozen=True, slots=True)
class FileBox:
    """A box at the top level of a file, as offsets into it."""

    kind: bytes
    start: int
    payload_start: int
    end: int
    is_whole: bool
    """False if its size reaches beyond the end of the file; `end` is then the end of the file."""


def damaged(detail: str) -> NotIndexable:
    """Returns the error for an inconsistent box; `detail` is a clause that says why."""
    return NotIndexable("damaged", f"The index of the video is damaged: {detail}.")


class Fields:
    """Reads the fields of a box in order; raises `NotIndexable` past its end."""

    def __init__(self, payload: memoryview) -> None:
        self._payload = payload
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return len(self._payload) - self.position

    def take(self, count: int) -> memoryview:
        """The next `count` bytes."""
        if count > self.remaining:
            raise damaged("a box ends early")
        taken = self._payload[self.position : self.position + count]
        self.position += count
        return taken

    def unsigned(self, size: int) -> int:
        """The next unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def signed(self, size: int) -> int:
        """The next signed number of `size` bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def version_and_flags(self) -> tuple[int, int]:
        """The version and flags at the start of a full box (section 4.2.2)."""
        return self.unsigned(1), self.unsigned(3)

    def rest(self) -> memoryview:
        """The unread remainder."""
        return self.take(self.remaining)


def boxes_in(payload: memoryview) -> Iterator[Box]:
    """Yields the boxes in `payload`; stops at the first one with an impossible size."""
    position = 0
    for _ in range(MAX_BOXES_IN_A_BOX):
        header = _header(payload[position : position + 16], len(payload) - position)
        if header is None:
            return
        kind, header_size, size = header
        raw = payload[position : position + size]
        if len(raw) < size:
            return
        yield Box(kind, raw[header_size:], raw)
        position += size


def children(payload: memoryview) -> dict[bytes, Box]:
    """The boxes in `payload`, by kind; the first one of each kind."""
    found: dict[bytes, Box] = {}
    for box in boxes_in(payload):
        found.setdefault(box.kind, box)
    return found


def descend(payload: memoryview, *path: bytes) -> memoryview | None:
    """The payload of the first box at the end of `path`; None if there is none."""
    for kind in path:
        box = next((box for box in boxes_in(payload) if box.kind == kind), None)
        if box is None:
            return None
        payload = box.payload
    return payload


def file_boxes(read_at: ReadAt, length: int) -> Iterator[FileBox]:
    """Yields the top-level boxes of a file of `length` bytes; reads their headers only.

    Stops at the first data that cannot be a box.
    """
    position = 0
    for _ in range(MAX_TOP_LEVEL_BOXES):
        header = _header(memoryview(read_at(position, 16)), length - position)
        if header is None:
            return
        kind, header_size, size = header
        end = min(position + size, length)
        yield FileBox(kind, position, min(position + header_size, end), end, end == position + size)
        position = end
    raise NotIndexable("too_many_boxes", "The file consists of too many pieces to be indexed.")


def _header(start: memoryview, available: int) -> tuple[bytes, int, int] | None:
    """Kind, header size and box size; None if this is not a valid box header."""
    if len(start) < 8 or available < 8:
        return None
    size, kind, header_size = int.from_bytes(start[:4], "big"), bytes(start[4:8]), 8
    if size == 1 and len(start) >= 16:
        size, header_size = int.from_bytes(start[8:16], "big"), 16
    elif size == 0:
        size = available
    return (kind, header_size, size) if size >= header_size else None


def numbers(code: str, data: memoryview) -> array[int]:
    """Big-endian numbers as an array of type `code`; a partial number at the end is dropped."""
    values = array(code)
    values.frombytes(data[: len(data) - len(data) % values.itemsize])
    if sys.byteorder == "little":
        values.byteswap()
    return values


def big_endian(values: array[int]) -> bytes:
    """Encodes `values` as a box stores them."""
    stored = values[:]
    if sys.byteorder == "little":
        stored.byteswap()
    return stored.tobytes()


def box(kind: bytes, *payload: bytes | memoryview) -> bytes:
    """A box; its size has 64 bits where needed."""
    return b"".join((box_header(kind, sum(map(len, payload))), *payload))


def box_header(kind: bytes, length: int) -> bytes:
    """The header of a box with `length` bytes of payload."""
    if length + 8 <= LARGEST_32_BIT:
        return (length + 8).to_bytes(4, "big") + kind
    return b"\0\0\0\1" + kind + (length + 16).to_bytes(8, "big")


def full_box(kind: bytes, version: int, flags: int, *payload: bytes | memoryview) -> bytes:
    """A box that begins with a version and flags."""
    return box(kind, bytes((version,)), flags.to_bytes(3, "big"), *payload)


def rewritten(
    original: Box, replacements: Mapping[bytes, bytes], *, inside: frozenset[bytes]
) -> list[bytes | memoryview]:
    """A box with child boxes of some kinds replaced (b"" drops them), as a list of pieces.

    Replaces children of `original` and, recursively, of its children of the kinds `inside`.
    """
    pieces: list[bytes | memoryview] = []
    for child in boxes_in(original.payload):
        if child.kind in replacements:
            pieces.append(replacements[child.kind])
        elif child.kind in inside:
            pieces += rewritten(child, replacements, inside=inside - {child.kind})
        else:
            pieces.append(child.raw)
    return [box_header(original.kind, sum(map(len, pieces))), *pieces]


# ---- errors --------------------------------------------------------------------------------------

# The one error of the index.


class NotIndexable(Exception):
    """The file cannot be indexed; `code` is stable, `detail` is a sentence for the file's owner."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class LongIndex(Exception):
    """The index has more entries than this process may read; see `samples.py`."""

    def __init__(self, entries: int) -> None:
        super().__init__(f"the index has {entries} entries")
        self.entries = entries
