"""The order in which a film is sent, so that it can be played while it arrives.

An MP4 or MOV needs its index for that, the `moov` box, and most cameras and phones write it at the
end. Such a film is sent with its index first, then from its start. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sluice_client.errors import SluiceError
from sluice_client.spans import Span, Spans

HEADER_BYTES = 16
"""The header of a box with a 64-bit size (ISO/IEC 14496-12, 4.2)."""

MOST_BOXES = 64
"""A film has a handful of boxes at its top level before `moov`; one with more is sent in order."""

FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"wide", b"free"})
"""What an MP4 begins with, or a QuickTime file from before `ftyp`."""

NEEDED_WHOLE = frozenset({b"ftyp", b"moov"})
"""Boxes that a player needs whole, not only their headers."""

ReadAt = Callable[[int, int], bytes]
"""The bytes of a file from a position on; fewer than asked for at its end."""


@dataclass(frozen=True, slots=True)
class _Box:
    kind: bytes
    span: Span

    @property
    def needed(self) -> Span:
        if self.kind in NEEDED_WHOLE:
            return self.span
        return Span(self.span.start, min(self.span.end, self.span.start + HEADER_BYTES))


def needed_first(read_at: ReadAt, length: int) -> list[Span]:
    """The `moov` box, and before it the headers of the boxes that a reader passes on its way there.

    Nothing for any other file, and for one that is damaged or cannot be read. `read_at(position,
    count)` is asked for headers only.
    """
    needed = []
    try:
        for box in _boxes(read_at, length):
            needed.append(box.needed)
            if box.kind == b"moov":
                return needed
    except (OSError, SluiceError):
        pass  # The upload reads these bytes too, and reports the error.
    return []


def next_missing(missing: Spans, first: Iterable[Span]) -> tuple[int, Span]:
    """The byte to send next, and the gap it is in; `missing` must not be empty."""
    for wanted in first:
        for gap in missing:
            if gap.start < wanted.end and wanted.start < gap.end:
                return max(gap.start, wanted.start), gap
    gap = next(iter(missing))
    return gap.start, gap


def _boxes(read_at: ReadAt, length: int) -> Iterator[_Box]:
    """The boxes at the top level, as far as they make sense."""
    start = 0
    for _ in range(MOST_BOXES):
        header = read_at(start, HEADER_BYTES)
        size, kind = _size(header, length - start), header[4:8]
        is_film = start > 0 or kind in FIRST_BOXES
        if not is_film or size < 8 or start + size > length:
            return
        yield _Box(kind, Span(start, start + size))
        start += size


def _size(header: bytes, left: int) -> int:
    """0 stands for "to the end of the file", 1 for a size of 64 bits after the type."""
    if len(header) < 8:
        return 0
    size = int.from_bytes(header[:4])
    if size == 1:
        return int.from_bytes(header[8:16]) if len(header) == HEADER_BYTES else 0
    return size or left
