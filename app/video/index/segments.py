"""A track as fragmented MP4 for HLS: an initialization segment, and segments that name the media.

Segments are cut at key frames. What is decoded after a key frame is in its segment: the leading
pictures of an open group, shown before it, too. Decode times begin at 0, which players take for the
time of the first segment, and composition offsets are never negative: ffmpeg would show the others
too late. Where pictures are reordered, and where sound begins before time 0 as that of every AAC
encoder does, an edit list says which time is 0.

ISO/IEC 14496-12, section 8.8; ISO/IEC 23000-19 (CMAF), section 7.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise

from app.core.ranges import ByteRange
from app.video.index.boxes import LARGEST_32_BIT, box, children, damaged, full_box
from app.video.index.edits import Edit
from app.video.index.errors import NotIndexable
from app.video.index.flattened import PREROLL_SECONDS, hides_its_beginning
from app.video.index.fragment_boxes import Fragment
from app.video.index.movie_boxes import movie_box, no_sample_tables, track_box
from app.video.index.sample_entries import plain_description
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.silence import MOST_SECONDS, NO_SILENCE, Silence, with_silence
from app.video.index.tracks import Track
from app.video.index.virtual_file import Piece

TARGET_SECONDS = 4
"""A segment ends at the first key frame after this long."""

MOST_SEGMENTS = 20_000
"""Films that would have more, of 22 hours, have longer ones."""

_SHORTEST_REST = 8
"""What is left at the end of a film joins the segment before if it is shorter than this part of a
usual one."""

_FILE_TYPE = box(b"ftyp", b"iso6", bytes(4), b"iso6cmfcmp41")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment; times are in seconds of the film."""

    start: Fraction
    duration: Fraction
    head: bytes
    """Its boxes up to the media of the film."""
    starts: array[int]
    ends: array[int]
    """Where the media is, in runs."""

    @property
    def pieces(self) -> list[Piece]:
        """All of it."""
        return [self.head, *map(ByteRange, self.starts, self.ends)]


@dataclass(frozen=True, slots=True)
class SegmentedTrack:
    """A track cut into segments. All times are in its ticks."""

    track: Track
    cuts: Sequence[int]
    """The first sample of each segment, and the end of the last."""
    starts: Sequence[int]
    """When each segment begins to be shown, and when the last one ends; the film's time."""
    lead: int
    """What to add to decode times; they then begin at 0, or when the track does."""
    media_time: int
    """What is at time 0, by decode times so moved."""
    stretch: int = 0
    """How much earlier the first picture is decoded, so that there is one at time 0."""
    pull: int = 0
    """How much earlier than that it is shown: by as much as leading pictures are before it."""
    silence: Silence = NO_SILENCE

    @property
    def initialization(self) -> bytes:
        """The file that a player loads before the segments."""
        description = children(self.track.tables)[b"stsd"].payload
        plain = plain_description(description, self.track.kind)
        return initialization(self.track, box(b"stsd", plain), self.media_time)

    def segments(self) -> Iterator[Segment]:
        """The segments, in order."""
        timescale = self.track.timescale
        for number, (start, end) in enumerate(pairwise(self.starts)):
            first, last = self.cuts[number], self.cuts[number + 1]
            head = self._fragment(number).head(self.track.id, number + 1)
            head += self.silence.within(first, last)
            bounds = self.track.samples.bounds(max(first, self.silence.count), last)
            yield Segment(
                Fraction(start, timescale), Fraction(end - start, timescale), head, *bounds
            )

    def _fragment(self, number: int) -> Fragment:
        samples, first, last = self.track.samples, self.cuts[number], self.cuts[number + 1]
        durations = array("I", samples.durations(first, last))
        shift = self.track.timeline.shift - self.lead + self.media_time
        offsets = array("I", map(shift.__add__, samples.composition_offsets[first:last]))
        decode_time = samples.decode_times[first] + self.lead
        if number == 0 and self.stretch:
            decode_time -= self.stretch
            durations[0] = min(durations[0] + self.stretch, LARGEST_32_BIT)
            offsets[0] -= self.pull
        keys = samples.key_frames
        within = keys[bisect_left(keys, first) : bisect_left(keys, last)]
        return Fragment(
            decode_time,
            durations,
            samples.sizes[first:last],
            offsets,
            [key - first for key in within],
        )


def initialization(track: Track, description: bytes, media_time: int) -> bytes:
    """What players load before fragments of a track; `media_time` is what is at time 0.

    `description` is its `stsd` box.
    """
    edits = (Edit(0, media_time),) if media_time else ()
    trak = track_box(track, no_sample_tables(description), durations=(0, 0), edits=edits)
    defaults = (track.id, 1, 0, 0, 0)
    trex = full_box(b"trex", 0, 0, *(number.to_bytes(4, "big") for number in defaults))
    return _FILE_TYPE + movie_box(track.timescale, 0, trak, box(b"mvex", trex))


def segmented_video(track: Track) -> SegmentedTrack:
    """A video track cut at key frames; raises `NotIndexable` if HLS cannot express it."""
    track = _from_its_first_picture(track)
    samples = _usable(track)
    first = samples.key_frames[0] if samples.key_frames else 0
    cuts = _cuts_at_key_frames(samples, first, len(samples), target_of(track))
    shown = [
        min(samples.composition_times(*span)) + track.timeline.shift for span in pairwise(cuts)
    ]
    begin = max(shown[0], 0)
    first_shown = next(samples.composition_times(first, first + 1)) + track.timeline.shift
    # Leading pictures of the first key frame cannot be decoded: it is what there is to be shown.
    pull = first_shown - begin if begin else 0
    shown[0] = 0
    lead = begin - samples.decode_times[first]
    media_time = _media_time(track, lead)
    return SegmentedTrack(
        track, cuts, _ascending((*shown, track.end)), lead, media_time, stretch=begin, pull=pull
    )


def segmented_sound(track: Track, times: Iterable[Fraction] = ()) -> SegmentedTrack:
    """Another track cut near `times`, those at which the segments of the video begin.

    Where they end, or without any, segments have their usual length. Sound that begins late has
    silence before.
    """
    samples, shift = _usable(track), track.timeline.shift
    preroll = -shift - int(PREROLL_SECONDS * track.timescale)
    first = max(bisect_right(samples.decode_times, preroll) - 1, 0)
    if samples.decode_times[first] + shift > MOST_SECONDS * track.timescale:
        raise _too_complex()
    track, silence = with_silence(track, first)
    if silence.count:
        samples, first = track.samples, 0
    times_of = samples.decode_times
    end = track.timeline.end
    last = len(samples) if end is None else max(bisect_left(times_of, end - shift), first + 1)
    cuts = [first]
    for time in times:
        cut = bisect_left(times_of, time * track.timescale - shift)
        if cuts[-1] < cut < last:
            cuts.append(cut)
    target = target_of(track)
    while (cut := bisect_left(times_of, times_of[cuts[-1]] + target)) < last:
        if samples.end - times_of[cut] < target // 2:
            break  # The rest is so short that the last segment takes it.
        cuts.append(cut)
    shown = [0, *(max(times_of[cut] + shift, 0) for cut in cuts[1:])]
    lead = max(shift, -times_of[first])
    starts = _ascending((*shown, track.end))
    media_time = _media_time(track, lead)
    return SegmentedTrack(track, [*cuts, last], starts, lead, media_time, silence=silence)


def _from_its_first_picture(track: Track) -> Track:
    """The track with no picture before time 0; raises `NotIndexable` if an edit hides some."""
    if hides_its_beginning(track):
        raise _too_complex()
    count = min(len(track.samples), MOST_REORDERED)
    first = min(track.samples.composition_times(0, count), default=0) + track.timeline.shift
    shift = track.timeline.shift - min(first, 0)
    return replace(track, timeline=replace(track.timeline, shift=shift))


def _usable(track: Track) -> Samples:
    if not len(track.samples):
        raise NotIndexable("no_samples", "A track of the video is empty.")
    if not track.timeline.is_simple:
        raise _too_complex()
    if not track.has_one_description:
        raise NotIndexable("several_codecs", "The video changes its coding while it plays.")
    return track.samples


def _too_complex() -> NotIndexable:
    return NotIndexable(
        "complex_edits", "The edit list of the video repeats parts often, or changes their speed."
    )


def target_of(track: Track) -> int:
    """How long a segment is at least, in ticks."""
    samples = track.samples
    return max(
        TARGET_SECONDS * track.timescale, (samples.end - samples.decode_times[0]) // MOST_SEGMENTS
    )


def _cuts_at_key_frames(samples: Samples, first: int, last: int, target: int) -> list[int]:
    cuts, due = [first], samples.decode_times[first] + target
    for key in samples.key_frames:
        is_rest_long = samples.end - samples.decode_times[key] >= target // _SHORTEST_REST
        if samples.decode_times[key] >= due and key < last and is_rest_long:
            cuts.append(key)
            due = samples.decode_times[key] + target
    return [*cuts, last]


def _ascending(times: Iterable[int]) -> array[int]:
    """The times, none before an earlier one as in damaged files."""
    return array("q", accumulate(times, max))


def _media_time(track: Track, lead: int) -> int:
    """The smallest one with which no composition offset is negative."""
    offsets, shift = track.samples.composition_offsets, track.timeline.shift - lead
    media_time = max(-shift - min(offsets), 0)
    if max(offsets) + shift + media_time > LARGEST_32_BIT:
        raise damaged("pictures are decoded too long before they are shown")
    return media_time
