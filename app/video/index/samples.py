"""The samples of a track, stored in columns.

A sample is one unit of decoder input: a video frame, an audio packet, a subtitle.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, pairwise, repeat
from operator import add, gt, ne, sub

from app.core.ranges import ByteRange

MAX_SAMPLES = 10_000_000
"""In all tracks: 40 hours, at 24 bytes of memory each. A video with more is not indexed."""

MOST_REORDERED = 64
"""The first shown frame is within this many samples of a key frame, or of the start of a file."""


def most_samples(length: int) -> int:
    """Maximum number of samples in a file of `length` bytes; a table that claims more is damaged.

    A sample has at least one byte of media, or it is empty and a table lists its size. Only a table
    with a common size of 0 could describe more samples than the file has bytes.
    """
    return min(MAX_SAMPLES, length)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a track in decode order, one column per property, all of the same length.

    Times are in ticks of the track's timescale, before its edits.
    """

    offsets: array[int]
    """Type Q: offsets into the file."""
    sizes: array[int]
    """Type I: bytes."""
    decode_times: array[int]
    """Type q, in non-descending order."""
    composition_offsets: array[int]
    """Type i: composition time minus decode time."""
    key_frames: Sequence[int]
    """Ascending numbers of the samples at which decoding can start."""
    end: int
    """End of the last sample, in decode time."""

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def longest_group(self) -> int:
        """The most samples from a key frame, or the first sample, up to the next key frame."""
        begins, ends = chain((0,), self.key_frames), chain(self.key_frames, (len(self),))
        longest: int = max(map(sub, ends, begins))
        return longest

    def composition_time(self, number: int) -> int:
        """The time at which a sample is shown."""
        return self.decode_times[number] + self.composition_offsets[number]

    def composition_times(self, first: int, last: int) -> Iterator[int]:
        """Composition times of the samples from `first` up to, not including, `last`."""
        return map(add, self.decode_times[first:last], self.composition_offsets[first:last])

    def durations(self, first: int, last: int) -> Iterator[int]:
        """Ticks from each decode time to the next."""
        after = self.decode_times[first + 1 : last + 1]
        if last >= len(self):
            after.append(self.end)
        return map(sub, after, self.decode_times[first:last])

    def duration(self, number: int) -> int:
        """Ticks from the decode time of a sample to the next."""
        return next(self.durations(number, number + 1))

    def contiguous(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The samples from `first` up to `last`, as runs that are contiguous in the file."""
        begins = self._begins(first, last)
        return pairwise([*begins, last] if begins else [])

    def bounds(self, first: int, last: int) -> tuple[array[int], array[int]]:
        """Byte offsets of the samples from `first` up to `last`: starts and ends of runs."""
        begins = self._begins(first, last)
        finals = [*(begin - 1 for begin in begins[1:]), last - 1] if begins else []
        starts = array("Q", map(self.offsets.__getitem__, begins))
        final_starts = map(self.offsets.__getitem__, finals)
        ends = array("Q", map(add, final_starts, map(self.sizes.__getitem__, finals)))
        return starts, ends

    def _begins(self, first: int, last: int) -> list[int]:
        """The first sample of each run."""
        if first >= last:
            return []
        ends = map(add, self.offsets[first : last - 1], self.sizes[first : last - 1])
        are_apart = map(ne, self.offsets[first + 1 : last], ends)
        return [first, *compress(range(first + 1, last), are_apart)]

    def extents(self, first: int, last: int) -> Iterator[ByteRange]:
        """The same as `bounds`, as ranges."""
        return map(ByteRange, *self.bounds(first, last))

    def up_to(self, count: int) -> Samples:
        """The first `count` samples."""
        if count >= len(self):
            return self
        return Samples(
            self.offsets[:count],
            self.sizes[:count],
            self.decode_times[:count],
            self.composition_offsets[:count],
            self.key_frames[: bisect_left(self.key_frames, count)],
            self.decode_times[count],
        )

    def earlier(self, ticks: int) -> Samples:
        """The same samples, decoded `ticks` earlier."""
        times = array("q", map((-ticks).__add__, self.decode_times))
        return replace(self, decode_times=times, end=self.end - ticks)

    def finer(self, factor: int) -> Samples:
        """The same samples in ticks `factor` times as fine; raises `OverflowError`."""
        if factor == 1:
            return self
        return replace(
            self,
            decode_times=array("q", map(factor.__mul__, self.decode_times)),
            composition_offsets=array("i", map(factor.__mul__, self.composition_offsets)),
            end=factor * self.end,
        )

    def count_within(self, length: int) -> int:
        """Number of samples before the first one that ends beyond `length` bytes."""
        are_beyond = map(gt, map(add, self.offsets, self.sizes), repeat(length))
        return next(compress(range(len(self)), are_beyond), len(self))


def no_samples() -> Samples:
    """Returns empty columns."""
    return Samples(array("Q"), array("I"), array("q"), array("i"), range(0), 0)
