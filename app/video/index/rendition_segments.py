"""Cuts a video track into segments that are encoded independently of each other.

A segment has the frames that are shown from its start up to its end. It starts at a key frame, so
that little else has to be decoded; the leading pictures of that key frame, which are shown before
it, belong to the previous segment. Where key frames are rare, it starts at any frame.

The decode time of a segment is the time at which its first frame is shown. Frames are shown
`delay` later than their composition time, which an edit list compensates. So segments that were
encoded independently follow each other without overlap, in any frame order the encoder chooses.
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
"""A source segment longer than this many usual segments is cut into several."""

_REORDERED = 2
"""Maximum reorder depth of the encoder, in frames."""

_KEPT_DESCRIPTIONS = frozenset((b"avcC", b"colr"))
"""Boxes of a sample entry that a decoder needs. The rest, such as bit rates, varies by segment."""

_VISUAL_HEADER = 8 + 78
"""Bytes of a sample entry before its boxes (ISO/IEC 14496-12, section 12.1.3)."""


@dataclass(frozen=True, slots=True)
class SegmentExcerpt:
    """The samples that a decoder needs for one segment, with times of their own."""

    samples: Samples
    begin: int
    """Tick of the video at time 0 of the excerpt."""
    start: int
    """Start of the segment, in the excerpt's time."""
    end: int
    """End of the segment, exclusive."""
    unseen: tuple[range, ...]
    """Ranges of ticks with frames that do not belong to the segment."""

    @property
    def size(self) -> int:
        """Bytes of media."""
        return sum(self.samples.sizes)

    def film(self, track: Track) -> Iterator[Piece]:
        """The excerpt as an MP4 file."""
        return film_of(track, self.samples)

    def lacking_key_frames(self, made: Set[int]) -> tuple[range, ...]:
        """Ranges of ticks with frames that refer to a key frame that is missing in `made`.

        Decoders output such frames anyway, in grey. A leading picture refers to the previous key
        frame, too. Key frames that are not shown are assumed to be decoded.
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
class RenditionCuts:
    """A video track and its cuts. All times are in its ticks, in the video's time."""

    track: Track
    starts: Sequence[int]
    """Start of each segment, and end of the last one."""

    @classmethod
    def of(cls, source: SegmentedTrack) -> RenditionCuts:
        """Cuts near those of the source track."""
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
        """Duration of each segment, in seconds."""
        # Differences of rounded times, so that rounding errors do not accumulate.
        seconds = [round(time / self.track.timescale, 6) for time in self.starts]
        return tuple(round(end - start, 6) for start, end in pairwise(seconds))

    @property
    def delay(self) -> int:
        """See above: enough for the encoder's frame order at the usual frame rate."""
        rate = self.track.frame_rate or 1
        return max(round(_REORDERED * self.track.timescale / rate), 2 * _REORDERED)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def excerpt(self, number: int) -> SegmentExcerpt:
        """The samples to decode for a segment, counted from 1."""
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
        if number == 1 and self.track.is_h264:  # Its leading pictures refer to missing frames.
            start = max(start, self.track.shown_at(first))
        return SegmentExcerpt(chosen, begin, start - begin, end - begin, unseen)

    def segment(self, number: int, pictures: Track, begin: int) -> Fragment:
        """The encoded frames of a segment; `begin` is the tick of the video at their time 0."""
        count = len(pictures.samples)
        times = [begin + pictures.shown_at(sample) for sample in range(count)]
        start, end = self.starts[number - 1], self.starts[number]
        times[0] = start  # It is later if earlier frames are missing, as in a damaged video.
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
        """The initialization segment; the same for `pictures` of any segment."""
        return initialization(pictures, _description(pictures), self.delay)


def _cut_further(track: Track, ticks: range, pictures: range) -> Iterator[int]:
    """Start times of the segments that one segment with these samples is cut into."""
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
    """First and end of the samples to decode in order to show frames from `start` up to `end`."""
    count, keys = len(track.samples), track.samples.key_frames
    first = key_frame_before(track, Fraction(start, track.timescale))
    # Of the frames decoded after a key frame, only its leading pictures are shown before it.
    after = bisect_left(keys, end, key=track.shown_at)
    last = min(keys[after] + MOST_REORDERED, count) if after < len(keys) else count
    while last > first + 1 and track.shown_at(last - 1) >= end:
        last -= 1
    return first, max(last, first + 1)


def _decode_times(times: Sequence[int], delay: int) -> list[int]:
    """Ascending decode times for samples shown at `times`.

    They are the sorted `times`, but none is later than `delay` after the sample is shown.
    """
    latest = [time + delay for time in times]
    for place in range(len(latest) - 2, -1, -1):
        latest[place] = min(latest[place], latest[place + 1] - 1)
    return [min(pair) for pair in zip(sorted(times), latest, strict=True)]


def _description(pictures: Track) -> bytes:
    """The `stsd` box of an encoded segment, without the boxes that vary by segment."""
    stsd = Fields(children(pictures.tables)[b"stsd"].payload)
    header = stsd.take(8)
    entry = next(boxes_in(stsd.rest()), None)
    if entry is None or entry.kind != b"avc1":
        raise NotIndexable("not_h264", "The encoder has made something else than H.264.")
    parts = boxes_in(entry.raw[_VISUAL_HEADER:])
    kept = (each.raw for each in parts if each.kind in _KEPT_DESCRIPTIONS)
    return box(b"stsd", header, box(b"avc1", entry.raw[8:_VISUAL_HEADER], *kept))


# ---- key frames ----------------------------------------------------------------------------------

# Independent key frames, at which any player can start decoding.
#
# In H.264 these are the IDR pictures. x264 and broadcasters also write other key frames, at the
# start of open GOPs, followed by pictures that refer to the previous GOP. Chromium stops with an
# error at these.
#
# HEVC needs no such care: decoders start at any IRAP picture, and drop the leading pictures that
# refer to earlier ones (RASL; ITU-T H.265, 8.3.1). AV1 and VP9 have no open GOPs.


MOST_LOOKED_AT = 500
"""Key frames of a video that are read from its media. Each takes up to 64 reads, all together
0.1 s; in a bucket, each takes one request for the block it begins in, and rarely a second one."""

_SAMPLED = 4
"""Key frames that are sampled in a video without leading pictures."""

_DEPENDENT_SLICES, _INDEPENDENT_SLICE = range(1, 5), 5  # ITU-T H.264, table 7-1
_MOST_UNITS = 64  # read before the first slice of a picture
_MOST_BYTES = 64 << 10  # likewise: parameter sets and captions take a few KiB


def independent_key_frames(
    track: Track, read_at: ReadAt, most: int = MOST_LOOKED_AT
) -> Sequence[int]:
    """The key frames at which every player can start decoding; all of them in codecs except H.264.

    `read_at` reads the video. If more than `most` may be independent, an even selection of `most`
    is checked and the others are left out.
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
    """Whether a key frame can be decoded without earlier frames: in H.264, an IDR picture."""
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
    """Bytes of the length field before each NAL unit (ISO/IEC 14496-15, 5.3, 8.3)."""
    kind, place = (b"hvcC", 21) if track.is_hevc else (b"avcC", 4)
    configuration = track.entry.box.partition(kind)[2]
    return (configuration[place] & 3) + 1 if len(configuration) > place else 4


def _without_leading(samples: Samples) -> Sequence[int]:
    groups = pairwise(chain(samples.key_frames, (len(samples),)))
    return [key for key, end in groups if not _has_leading(samples, key, end)]


def _has_leading(samples: Samples, key: int, end: int) -> bool:
    last = min(end, key + MOST_REORDERED)
    return min(samples.composition_times(key, last)) < samples.composition_time(key)


def _evenly(numbers: Sequence[int], most: int) -> Sequence[int]:
    """The numbers, or an even selection of `most` of them."""
    if len(numbers) <= most:
        return numbers
    return [numbers[place * len(numbers) // most] for place in range(most)]
