"""Byte intervals and sets of them. Half-open everywhere; inclusive forms live in header codecs."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

MAX_BYTES = (1 << 63) - 1
"""The highest bound of a `RangeSet`, which raises `OverflowError` beyond it. File offsets and
SQLite's integers end there too."""


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes from `start` up to, not including, `end`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a byte range: [{self.start}, {self.end})")

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class RangeSet:
    """An immutable set of bytes: ranges in order that neither overlap nor touch.

    It is stored as ascending bounds: start, end, start, end and so on. A byte is in the set if an
    odd number of bounds is at or before it. As 64-bit numbers in one block of memory, 16 bytes per
    range, they allow binary search and are read and written as a whole.
    """

    _bounds: array[int] = field(default_factory=partial(array, "q"))

    @classmethod
    def of(cls, ranges: Iterable[ByteRange]) -> RangeSet:
        """The union of `ranges`, given in any order."""
        bounds = array("q")
        for item in sorted(ranges):
            if item.length == 0:
                continue
            if bounds and bounds[-1] >= item.start:
                bounds[-1] = max(bounds[-1], item.end)
            else:
                bounds.extend((item.start, item.end))
        return cls(bounds)

    @classmethod
    def from_bytes(cls, data: bytes) -> RangeSet:
        """Parse the output of `to_bytes`; raises `ValueError` if it is damaged."""
        if len(data) % 16:
            raise ValueError(f"damaged: {len(data)} bytes are not a whole number of ranges")
        bounds = array("q", data)
        to_little_endian(bounds)
        return cls(bounds)

    def to_bytes(self) -> bytes:
        """The bounds as signed 64-bit little-endian numbers: 16 bytes per range."""
        bounds = self._bounds[:]
        to_little_endian(bounds)
        return bounds.tobytes()

    def __hash__(self) -> int:
        return hash(self._bounds.tobytes())

    def __iter__(self) -> Iterator[ByteRange]:
        return _pairs(self._bounds)

    def __len__(self) -> int:
        return len(self._bounds) // 2

    @property
    def total(self) -> int:
        """Number of bytes in the set."""
        return sum(self._bounds[1::2]) - sum(self._bounds[::2])

    @property
    def prefix_end(self) -> int:
        """End of the range that starts at byte 0; 0 if byte 0 is not in the set."""
        return self._bounds[1] if self._bounds and self._bounds[0] == 0 else 0

    @property
    def end(self) -> int:
        """End of the last range; 0 for the empty set."""
        return self._bounds[-1] if self._bounds else 0

    def add(self, span: ByteRange) -> RangeSet:
        """The set with `span` added."""
        if span.start == span.end:
            return self
        # The bounds from `first` to `last` are in the span or at its ends: drop them.
        first, last = bisect_left(self._bounds, span.start), bisect_right(self._bounds, span.end)
        bounds = self._bounds[:first]
        if first % 2 == 0:
            bounds.append(span.start)
        if last % 2 == 0:
            bounds.append(span.end)
        return RangeSet(bounds + self._bounds[last:])

    def covers(self, span: ByteRange) -> bool:
        """Whether every byte of `span` is in the set; an empty span always is."""
        if span.start == span.end:
            return True
        after = bisect_right(self._bounds, span.start)
        return after % 2 == 1 and span.end <= self._bounds[after]

    def gaps(self, span: ByteRange) -> Iterator[ByteRange]:
        """The parts of `span` that are not in the set, in order."""
        if span.start == span.end:
            return iter(())
        first, last = bisect_right(self._bounds, span.start), bisect_left(self._bounds, span.end)
        before = () if first % 2 else (span.start,)
        after = () if last % 2 else (span.end,)
        return _pairs(chain(before, self._bounds[first:last], after))

    def missing(self, length: int) -> RangeSet:
        """The ranges missing from a file of `length` bytes."""
        return RangeSet.of(self.gaps(ByteRange(0, length)))


def _pairs(bounds: Iterable[int]) -> Iterator[ByteRange]:
    starts_and_ends = iter(bounds)
    return map(ByteRange, starts_and_ends, starts_and_ends)


def to_little_endian(numbers: array[int]) -> None:
    """Swap the bytes of native numbers, or of little-endian ones, on a big-endian machine."""
    if sys.byteorder == "big":
        numbers.byteswap()
