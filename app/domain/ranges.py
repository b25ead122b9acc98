"""Byte intervals and sets of them. Half-open everywhere; inclusive forms live in header codecs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile


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

    def touches(self, other: ByteRange) -> bool:
        """Whether the two overlap or stand side by side, so that their union is one range."""
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True, slots=True)
class RangeSet:
    """An immutable set of bytes, held as sorted ranges that neither overlap nor touch.

    `of()` takes ranges in any order; the constructor trusts its argument.
    """

    ranges: tuple[ByteRange, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[ByteRange]) -> RangeSet:
        """The union of `ranges`, given in any order."""
        merged: list[ByteRange] = []
        for item in sorted(ranges):
            if item.length == 0:
                continue
            if merged and merged[-1].end >= item.start:
                merged[-1] = ByteRange(merged[-1].start, max(merged[-1].end, item.end))
            else:
                merged.append(item)
        return cls(tuple(merged))

    def __iter__(self) -> Iterator[ByteRange]:
        return iter(self.ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    @property
    def total(self) -> int:
        """Number of bytes in the set."""
        return sum(item.length for item in self.ranges)

    @property
    def prefix_end(self) -> int:
        """End of the range that starts at byte 0; 0 where byte 0 is not in the set."""
        if self.ranges and self.ranges[0].start == 0:
            return self.ranges[0].end
        return 0

    @property
    def end(self) -> int:
        """End of the last range; 0 for the empty set."""
        return self.ranges[-1].end if self.ranges else 0

    def add(self, span: ByteRange) -> RangeSet:
        """The set with `span` in it; adding what is there already changes nothing."""
        if span.length == 0:
            return self
        first = bisect_left(self.ranges, span.start, key=lambda item: item.end)
        last = bisect_right(self.ranges, span.end, key=lambda item: item.start)
        touched = self.ranges[first:last]
        merged = ByteRange(
            min([span.start, *(item.start for item in touched[:1])]),
            max([span.end, *(item.end for item in touched[-1:])]),
        )
        return RangeSet((*self.ranges[:first], merged, *self.ranges[last:]))

    def covers(self, span: ByteRange) -> bool:
        """Whether every byte of `span` is in the set; an empty span always is."""
        return next(self.gaps(span), None) is None

    def gaps(self, span: ByteRange) -> Iterator[ByteRange]:
        """The parts of `span` that are not in the set, in order."""
        position = span.start
        first = bisect_right(self.ranges, span.start, key=lambda item: item.end)
        for item in self.ranges[first:]:
            if item.start >= span.end:
                break
            if position < item.start:
                yield ByteRange(position, item.start)
            position = max(position, item.end)
        if position < span.end:
            yield ByteRange(position, span.end)

    def changes_to(self, other: RangeSet) -> tuple[tuple[ByteRange, ...], tuple[ByteRange, ...]]:
        """The ranges this set has and `other` has not, and the other way round.

        Both lie between what the two begin and end with in common, which after `add` is the same
        objects: nearly all.
        """
        old, new = self.ranges, other.ranges
        shared = _count_same(old, new)
        old, new = old[shared:], new[shared:]
        shared = _count_same(reversed(old), reversed(new))
        old, new = old[: len(old) - shared], new[: len(new) - shared]
        return tuple(set(old) - set(new)), tuple(set(new) - set(old))

    def missing(self, length: int) -> RangeSet:
        """What a file of `length` bytes still lacks."""
        return RangeSet(tuple(self.gaps(ByteRange(0, length))))


def _count_same(ones: Iterable[ByteRange], others: Iterable[ByteRange]) -> int:
    """How many of them are the same objects, from the first on."""
    pairs = zip(ones, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
