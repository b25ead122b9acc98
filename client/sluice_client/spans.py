"""Sets of half-open byte ranges, and the chunks that cover them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """In bytes."""
        return self.end - self.start


class Spans:
    """A mutable set of bytes, kept as sorted ranges that do not touch."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._spans: list[Span] = []
        for start, end in spans:
            self.add(start, end)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    @property
    def total(self) -> int:
        """Number of bytes."""
        return sum(span.length for span in self._spans)

    @property
    def prefix_end(self) -> int:
        """End of the range that begins at byte 0; 0 without one."""
        return self._spans[0].end if self._spans and self._spans[0].start == 0 else 0

    def add(self, start: int, end: int) -> None:
        """Add bytes."""
        if start >= end:
            return
        apart = [span for span in self._spans if span.end < start or span.start > end]
        touching = [span for span in self._spans if span.end >= start and span.start <= end]
        joined = Span(
            min([start, *(span.start for span in touching)]),
            max([end, *(span.end for span in touching)]),
        )
        self._spans = sorted([*apart, joined])

    def remove(self, start: int, end: int) -> None:
        """Remove bytes."""
        if start >= end:
            return
        left = [Span(span.start, min(span.end, start)) for span in self._spans]
        right = [Span(max(span.start, end), span.end) for span in self._spans]
        self._spans = sorted({span for span in [*left, *right] if span.length > 0})

    def missing(self, length: int) -> Spans:
        """The ranges of a file of `length` bytes that are not in the set."""
        gaps = Spans([(0, length)])
        for span in self._spans:
            gaps.remove(span.start, span.end)
        return gaps


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes for one request; the server expects `start` to be `index` times `size`.

    If it `is_direct`, it goes to the bucket, in cells of `size`.
    """

    index: int
    size: int
    span: Span
    is_direct: bool = False

    @property
    def cells(self) -> list[Span]:
        """Its bytes in cells of `size`; the last one may be shorter."""
        starts = range(self.span.start, self.span.end, self.size)
        return [Span(start, min(start + self.size, self.span.end)) for start in starts]


@dataclass(frozen=True, slots=True)
class ChunkLadder:
    """The chunk sizes that may be used: each twice the one before, so that their grids nest.

    Any chunk of a smaller size then lies within one of a larger size, so a change of size in
    mid-upload never sends bytes again that have arrived.
    """

    unit: int
    steps: int

    @classmethod
    def around(cls, chunk_bytes: int, *, smallest: int, largest: int) -> ChunkLadder:
        """The ladder with a step at (about) `chunk_bytes`; it has at least one step."""
        unit = max(1, chunk_bytes)
        while unit // 2 >= smallest:
            unit //= 2
        steps = 1
        while unit << steps <= max(largest, chunk_bytes):
            steps += 1
        return cls(unit, steps)

    @property
    def largest(self) -> int:
        """The top of the ladder, in bytes."""
        return self.unit << (self.steps - 1)

    def at_most(self, size: int) -> int:
        """The largest step of `size` bytes or less; the lowest if there is none."""
        step = self.unit
        while step << 1 <= min(size, self.largest):
            step <<= 1
        return step

    def at_least(self, size: int) -> int:
        """The smallest step of `size` bytes or more; the largest if there is none."""
        step = self.unit
        while step < min(size, self.largest):
            step <<= 1
        return step

    def chunk(self, position: int, gap: Span, *, at_most: int, length: int) -> Chunk:
        """The largest chunk that holds the byte at `position` and stays within the gap around it.

        It extends beyond the gap, by less than a unit, only if the gap starts or ends between the
        finest grid lines.
        """
        size = self.at_most(at_most)
        while size > self.unit and not _fits(_cell(position, size, length), gap):
            size >>= 1
        return Chunk(position // size, size, _cell(position, size, length))


def missing_cells(
    missing: Spans,
    first: Iterable[Span],
    *,
    cell_bytes: int,
    length: int,
    at_most: int,
    may_send: Callable[[int], bool],
) -> Chunk | None:
    """The next cells that are missing entirely, preferably at the start of a span of `first`.

    `may_send` tells whether the cell that starts there may be one of them.
    """

    def first_in(gap: Span) -> int:
        starts = range(-(-gap.start // cell_bytes) * cell_bytes, gap.end, cell_bytes)
        return next(filter(may_send, starts), gap.end)

    wanted = [span.start - span.start % cell_bytes for span in first]
    for start in [*filter(may_send, wanted), *map(first_in, missing)]:
        others = range(start + cell_bytes, start + at_most * cell_bytes, cell_bytes)
        for count in range(1 + sum(1 for _ in takewhile(may_send, others)), 0, -1):
            span = Span(start, min(start + count * cell_bytes, length))
            if span.length > 0 and any(_fits(span, gap) for gap in missing):
                return Chunk(start // cell_bytes, cell_bytes, span, is_direct=True)
    return None


def _cell(position: int, size: int, length: int) -> Span:
    """The cell around `position` in the grid of `size`, cut at the end of the file."""
    start = position - position % size
    return Span(start, min(start + size, length))


def _fits(span: Span, gap: Span) -> bool:
    return gap.start <= span.start and span.end <= gap.end
