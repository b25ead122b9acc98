"""A picture cut into segments that are encoded anew, each apart from all others.

A segment has the pictures that are shown from its beginning up to its end. It begins at a key
frame, so that little is decoded besides; the leading pictures of that key frame, which are shown
before it, belong to the segment before. Where key frames are rare, it begins at any picture.

Every segment is decoded at the time at which its first picture is shown, and pictures are shown
`delay` later than their composition says, which an edit list takes back. So whatever order the
encoder chooses, segments that were made apart follow each other without overlap.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise, starmap
from operator import add, sub

from app.video.index.boxes import (
    LARGEST_32_BIT,
    Fields,
    NotIndexable,
    ReadAt,
    box,
    boxes_in,
    children,
)
from app.video.index.muxing import film_of, key_frame_before
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.segments import Fragment, SegmentedTrack, initialization, target_of
from app.video.index.tracks import Track
from app.video.index.virtual_file import Piece

_LONGEST = 2
"""A segment of the source that lasts longer than so many usual ones is cut into several."""

_REORDERED = 2
"""Pictures after which, at most, the encoder puts one that is shown before them."""

_KEPT_DESCRIPTIONS = frozenset((b"avcC", b"colr"))
"""What a decoder needs of a sample entry. The rest, such as bit rates, differs by segment."""

_VISUAL_HEADER = 8 + 78
"""Bytes of a sample entry before its boxes (ISO/IEC 14496-12, section 12.1.3)."""


@dataclass(frozen=True, slots=True)
class SegmentExcerpt:
    """What a decoder gets to see of a film for one segment, at times of its own."""

    samples: Samples
    begin: int
    """Ticks of the film at its time 0."""
    start: int
    """The pictures that are shown from this tick of its own time ..."""
    end: int
    """... up to this one are those of the segment ..."""
    unseen: tuple[range, ...]
    """... without those of these ticks."""

    @property
    def size(self) -> int:
        """Bytes of its media."""
        return sum(self.samples.sizes)

    def film(self, track: Track) -> Iterator[Piece]:
        """It as an MP4 file."""
        return film_of(track, self.samples)

    def lacking_key_frames(self, made: Set[int]) -> tuple[range, ...]:
        """Ticks whose pictures refer to a key frame that should be among those `made`, and is not.

        Decoders make them all the same, of grey. A leading picture refers to the key frame
        before its own, too. Key frames that are not to be seen are taken for decoded.
        """
        times = list(map(add, self.samples.decode_times, self.samples.composition_offsets))
        keys = self.samples.key_frames
        lost = {key for key in keys if self._shows(times[key]) and times[key] not in made}
        if not lost:
            return ()
        bounds: list[tuple[int, bool]] = []
        for number, time in enumerate(times):
            last = bisect_right(keys, number) - 1
            is_leading = last >= 0 and time < times[keys[last]]
            needed = keys[max(last - is_leading, 0) : last + 1]
            bounds.append((time, not lost.isdisjoint(needed)))
        bounds.sort()
        ends = [time for time, _ in bounds[1:]] + [max(self.end, bounds[-1][0])]
        found: list[range] = []
        for (time, is_lacking), end in zip(bounds, ends, strict=True):
            if is_lacking and found and found[-1].stop == time:
                found[-1] = range(found[-1].start, end)
            elif is_lacking:
                found.append(range(time, end))
        return tuple(found)

    def _shows(self, time: int) -> bool:
        return self.start <= time < self.end and not any(time in run for run in self.unseen)


@dataclass(frozen=True, slots=True)
class RungCuts:
    """A picture and where it is cut. All times are in its ticks, of the film's time."""

    track: Track
    starts: Sequence[int]
    """When each segment begins, and when the last one ends."""

    @classmethod
    def of(cls, source: SegmentedTrack) -> RungCuts:
        """Cuts near those of the picture itself."""
        track = source.track
        end = max(source.starts[-1], source.starts[0] + 1)
        times, numbers = [source.starts[0]], [source.cuts[0]]
        for number in source.cuts[1:-1]:
            time = track.shown_at(number)
            if times[-1] < time < end:
                times.append(time)
                numbers.append(number)
        ticks = starmap(range, pairwise([*times, end]))
        pictures = starmap(range, pairwise([*numbers, source.cuts[-1]]))
        starts = [
            start
            for segment in zip(ticks, pictures, strict=True)
            for start in _cut_further(track, *segment)
        ]
        return cls(track, array("q", [*starts, end]))

    @property
    def durations(self) -> tuple[float, ...]:
        """Of each segment, in seconds."""
        # Differences of rounded times: their sum has no error that grows.
        seconds = [round(time / self.track.timescale, 6) for time in self.starts]
        return tuple(round(end - start, 6) for start, end in pairwise(seconds))

    @property
    def delay(self) -> int:
        """See above: enough for the encoder's order at the usual frame rate."""
        rate = self.track.frame_rate or 1
        return max(round(_REORDERED * self.track.timescale / rate), 2 * _REORDERED)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def excerpt(self, number: int) -> SegmentExcerpt:
        """What has to be decoded for a segment, counted from 1."""
        start, end = self.starts[number - 1], self.starts[number]
        first, last = _decoded(self.track, start, end)
        samples = self.track.samples
        begin = samples.decode_times[first]
        keys = samples.key_frames
        within = keys[bisect_left(keys, first) : bisect_left(keys, last)]
        chosen = Samples(
            samples.offsets[first:last],
            samples.sizes[first:last],
            array("q", (time - begin for time in samples.decode_times[first:last])),
            samples.composition_offsets[first:last],
            array("I", (key - first for key in within)),
            (samples.decode_times[last] if last < len(samples) else samples.end) - begin,
        )
        begin += self.track.timeline.shift
        near = (run for run in self.track.unseen if run.stop > start and run.start < end)
        unseen = tuple(range(run.start - begin, run.stop - begin) for run in near)
        if number == 1 and self.track.is_h264:  # Its leading pictures refer to what is not there.
            start = max(start, self.track.shown_at(first))
        return SegmentExcerpt(chosen, begin, start - begin, end - begin, unseen)

    def segment(self, number: int, pictures: Track, begin: int) -> Fragment:
        """The encoded pictures of a segment; `begin` is the tick of the film at their time 0."""
        count = len(pictures.samples)
        times = [begin + pictures.shown_at(sample) for sample in range(count)]
        start, end = self.starts[number - 1], self.starts[number]
        times[0] = start  # An earlier one is missing if it was later, as in a damaged film.
        decoded = _decode_times(times, self.delay)
        ends = [*decoded[1:], max(end, decoded[-1] + 1)]
        return Fragment(
            start,
            array("I", (min(lasts, LARGEST_32_BIT) for lasts in map(sub, ends, decoded))),
            pictures.samples.sizes,
            array("I", (t - d + self.delay for t, d in zip(times, decoded, strict=True))),
            [0],
        )

    def initialization(self, pictures: Track) -> bytes:
        """What players load before the segments; the same whichever of them it is taken from."""
        return initialization(pictures, _description(pictures), self.delay)


def _cut_further(track: Track, ticks: range, pictures: range) -> Iterator[int]:
    """The beginnings of the segments into which one is cut that has these samples."""
    yield ticks.start
    length, target = ticks.stop - ticks.start, target_of(track)
    if length <= _LONGEST * target:
        return
    step = Fraction(length, round(Fraction(length, target)))
    due = ticks.start + step
    for time in sorted(map(track.shown_at, pictures)):
        if time >= due and ticks.stop - time >= step / 2:
            yield time
            due = time + step


def _decoded(track: Track, start: int, end: int) -> tuple[int, int]:
    """The samples, first and end, that must be decoded to show those from `start` up to `end`."""
    count, keys = len(track.samples), track.samples.key_frames
    first = key_frame_before(track, Fraction(start, track.timescale))
    # Of what is decoded after a key frame, only its leading pictures are shown before it.
    after = bisect_left(keys, end, key=track.shown_at)
    last = min(keys[after] + MOST_REORDERED, count) if after < len(keys) else count
    while last > first + 1 and track.shown_at(last - 1) >= end:
        last -= 1
    return first, max(last, first + 1)


def _decode_times(times: Sequence[int], delay: int) -> list[int]:
    """Ascending times at which samples that are shown at `times` can be decoded.

    They are the same times in ascending order, but none later than `delay` after it is shown.
    """
    latest = [time + delay for time in times]
    for place in range(len(latest) - 2, -1, -1):
        latest[place] = min(latest[place], latest[place + 1] - 1)
    return [min(pair) for pair in zip(sorted(times), latest, strict=True)]


def _description(pictures: Track) -> bytes:
    """The `stsd` box of an encoder's pictures without what it says of these alone."""
    stsd = Fields(children(pictures.tables)[b"stsd"].payload)
    header = stsd.take(8)
    entry = next(boxes_in(stsd.rest()), None)
    if entry is None or entry.kind != b"avc1":
        raise NotIndexable("not_h264", "The encoder has made something else than H.264.")
    parts = boxes_in(entry.raw[_VISUAL_HEADER:])
    kept = (each.raw for each in parts if each.kind in _KEPT_DESCRIPTIONS)
    return box(b"stsd", header, box(b"avc1", entry.raw[8:_VISUAL_HEADER], *kept))


# ---- key frames ----------------------------------------------------------------------------------

# Key frames that are independent, so that any player can begin to decode at them.
#
# In H.264 those are the IDR pictures. Others, as x264 and broadcasters write them at the beginning
# of open groups, are followed by pictures that refer to the group before. Chromium gives up at
# these.
#
# HEVC needs no such care: its decoders begin at every IRAP picture, and leave out the leading
# pictures that refer to what is before it (RASL; ITU-T H.265, 8.3.1). AV1 and VP9 have no open
# groups.


MOST_LOOKED_AT = 500
"""Key frames of a film of which the media is read. Each takes up to 64 reads, all of them 0.1 s;
in a bucket, a request for the block that it begins in, and seldom one for the next."""

_SAMPLED = 4
"""Key frames that stand for all of a film without leading pictures."""

_DEPENDENT_SLICES, _INDEPENDENT_SLICE = range(1, 5), 5  # ITU-T H.264, table 7-1
_MOST_UNITS = 64  # are looked at before the first slice of a picture
_MOST_BYTES = 64 << 10  # likewise: parameter sets and captions take a few KiB


def independent_key_frames(
    track: Track, read_at: ReadAt, most: int = MOST_LOOKED_AT
) -> Sequence[int]:
    """The key frames at which every player can begin; all of other codecs than H.264.

    `read_at` reads the film. Where more than `most` may be independent, some are left out, evenly.
    """
    keys = track.samples.key_frames
    if not track.is_h264 or len(keys) == len(track.samples):
        return keys
    possible = _without_leading(track.samples)
    sampled = _evenly(possible, _SAMPLED)
    if len(possible) == len(keys) and all(is_independent(track, key, read_at) for key in sampled):
        return keys
    looked_at = _evenly(possible, most)
    return array("I", (key for key in looked_at if is_independent(track, key, read_at)))


def is_independent(track: Track, number: int, read_at: ReadAt) -> bool:
    """Whether a key frame can be decoded without what is before it: of H.264, an IDR picture."""
    if not track.is_h264:
        return True
    length_size, position = nal_length_size(track), track.samples.offsets[number]
    end = position + min(track.samples.sizes[number], _MOST_BYTES)
    for _ in range(_MOST_UNITS):
        header = read_at(position, length_size + 1) if position < end else b""
        if len(header) <= length_size:
            break
        kind = header[-1] & 0x1F
        if kind in _DEPENDENT_SLICES or kind == _INDEPENDENT_SLICE:
            return kind == _INDEPENDENT_SLICE
        position += length_size + int.from_bytes(header[:length_size], "big")
    return True


def nal_length_size(track: Track) -> int:
    """Bytes before each unit of a sample that say how long it is (ISO/IEC 14496-15, 5.3, 8.3)."""
    kind, place = (b"hvcC", 21) if track.is_hevc else (b"avcC", 4)
    configuration = track.entry.box.partition(kind)[2]
    return (configuration[place] & 3) + 1 if len(configuration) > place else 4


def _without_leading(samples: Samples) -> Sequence[int]:
    """The key frames before which nothing is shown of what is decoded after them."""
    groups = pairwise(chain(samples.key_frames, (len(samples),)))
    return [key for key, end in groups if not _has_leading(samples, key, end)]


def _has_leading(samples: Samples, key: int, end: int) -> bool:
    last = min(end, key + MOST_REORDERED)
    return min(samples.composition_times(key, last)) < samples.composition_time(key)


def _evenly(numbers: Sequence[int], most: int) -> Sequence[int]:
    """The numbers, or so many of them."""
    if len(numbers) <= most:
        return numbers
    return [numbers[place * len(numbers) // most] for place in range(most)]
