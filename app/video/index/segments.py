"""A track as fragmented MP4 for HLS: an initialization segment, and segments that refer to media.

Segments are cut at key frames. A segment contains everything decoded after its key frame, also
leading pictures of an open GOP, which are shown before it. Decode times begin at 0, which players
take as the time of the first segment, and composition offsets are never negative: ffmpeg would
show the other frames too late. If frames are reordered, or audio starts before time 0 as with every
AAC encoder, an edit list sets time 0.

ISO/IEC 14496-12, section 8.8; ISO/IEC 23000-19 (CMAF), section 7.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, chain, pairwise, starmap
from operator import add, sub

from app.core.ranges import ByteRange
from app.video.index.boxes import (
    LARGEST_32_BIT,
    Fields,
    NotIndexable,
    ReadAt,
    box,
    boxes_in,
    children,
    damaged,
    full_box,
)
from app.video.index.edits import Edit
from app.video.index.flattened import PREROLL_SECONDS, hides_its_beginning
from app.video.index.fragments import Fragment
from app.video.index.muxing import movie_box, no_sample_tables, track_box
from app.video.index.sample_entries import plain_description
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.tracks import Track
from app.video.index.virtual_file import Piece

# ---- silence -------------------------------------------------------------------------------------

# Silence before audio that begins later than the video, for HLS.
#
# Players cannot start or seek at a time where one of the streams has no media (RFC 8216, 6.2.4).
# Silent packets, which need no encoder, fill that time.


MOST_SECONDS = 3600
"""Maximum silence; a video with audio that begins later has only `play.mp4`."""

_MEASURED = 100
"""Packets that are averaged to get the packet duration: single ones are rounded to ticks."""

MOST_PACKETS = 1_000_000
"""Silent packets in all tracks of a video: six tracks that begin an hour late, or 32 that begin ten
minutes late, at the usual 47 per second. Each takes up to 30 bytes on disk: a 5.1 packet, and its
size entry."""

_MOST_A_SECOND = 110
"""Packets; no silence is added to a file that claims shorter packets. AAC packets last at least
10 ms: 960 samples at 96 kHz (ISO/IEC 14496-3). The margin is for rounded times."""

_ENCODED_A_SECOND = 50
"""Packets of encoded audio: 1024 samples, mostly at 48 kHz."""

_AAC = {
    1: "00c800802380",
    2: "210049900219002380",
    3: "00c8008020840126400864008e",
    4: "00c800802084012640086400802c80080238",
    5: "00c800802084012640086400823004990021900238",
    6: "00c800802084012640086400823004990021900200b2002008e0",
}
"""A silent AAC LC packet (ISO/IEC 14496-3, 4.4.2.1) for each number of channels: their elements in
the usual order, without spectral data."""

_AAC_CODECS = frozenset(("mp4a.40.2", "mp4a.40.5"))

_OPUS, _OPUS_SECONDS = bytes.fromhex("f8fffe"), Fraction(1, 50)
"""20 ms of silence (RFC 6716, 3.1: one CELT frame)."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Silent packets at the start of a track."""

    packet: bytes
    count: int

    def within(self, first: int, last: int) -> bytes:
        """The silent packets among the samples from `first` up to `last`."""
        return self.packet * max(min(last, self.count) - first, 0)


NO_SILENCE = Silence(b"", 0)


def can_begin_late(track: Track) -> bool:
    """Whether a silent packet is known for its codec, or no silence is needed."""
    return _lateness(track, 0) <= 0 or _packet(track) is not None


def silent_packets(track: Track) -> int:
    """Number of silent packets before an audio track, as it is or once encoded.

    A file sets the start of its audio in a few bytes: the size of its tables does not show this
    work.
    """
    late = _lateness(track, 0) if track.samples else 0
    if not 0 < late <= MOST_SECONDS * track.timescale:
        return 0
    packet = _packet(track)
    return int(late / (packet[1] if packet else Fraction(track.timescale, _ENCODED_A_SECOND)))


def with_silence(track: Track, first: int) -> tuple[Track, Silence]:
    """The track from its sample `first` on, with silence from time 0 up to that sample.

    Without silence if none is known for its codec. Silence begins within one packet of time 0.
    """
    packet, late = _packet(track), _lateness(track, first)
    samples = track.samples
    if packet is None or late <= 0:
        return track, NO_SILENCE
    data, duration = packet
    count = int(late / duration)
    begin, (ticks, parts) = samples.decode_times[first], duration.as_integer_ratio()
    times = (begin - (2 * number * ticks + parts) // (2 * parts) for number in range(count, 0, -1))
    longer = Samples(
        array("Q", bytes(8 * count)) + samples.offsets[first:],
        array("I", (len(data),)) * count + samples.sizes[first:],
        array("q", times) + samples.decode_times[first:],
        array("i", bytes(4 * count)) + samples.composition_offsets[first:],
        range(count + len(samples) - first),
        samples.end,
    )
    return replace(track, samples=longer), Silence(data, count)


def _lateness(track: Track, first: int) -> int:
    """Start of its sample `first` in the video's time, in ticks."""
    return track.samples.decode_times[first] + track.timeline.shift


def _packet(track: Track) -> tuple[bytes, Fraction] | None:
    """A silent packet and its duration in ticks; None if none is known for the track."""
    codec = track.codec.lower()
    if codec == "opus" and track.entry.channels <= 2:
        return _OPUS, _OPUS_SECONDS * track.timescale
    if codec not in _AAC_CODECS or track.entry.channels not in _AAC:
        return None
    times = track.samples.decode_times[: _MEASURED + 1]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    ticks = Fraction(times[-1] - times[0], len(times) - 1)
    if ticks * _MOST_A_SECOND < track.timescale:
        return None
    return bytes.fromhex(_AAC[track.entry.channels]), ticks


# ---- segments ------------------------------------------------------------------------------------


TARGET_SECONDS = 4
"""A segment ends at the first key frame after this time."""

MOST_SEGMENTS = 20_000
"""Reached at 22 hours; longer videos have longer segments."""

_SHORTEST_REST = 8
"""A rest at the end of a video shorter than 1/8 of a usual segment joins the last segment."""

_FILE_TYPE = box(b"ftyp", b"iso6", bytes(4), b"iso6cmfcmp41")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment; times are in seconds of the video."""

    start: Fraction
    duration: Fraction
    head: bytes
    """Its boxes up to the media."""
    starts: array[int]
    ends: array[int]
    """Starts and ends of the media in the source, in runs."""

    @property
    def pieces(self) -> list[Piece]:
        """The whole segment."""
        return [self.head, *map(ByteRange, self.starts, self.ends)]


@dataclass(frozen=True, slots=True)
class SegmentedTrack:
    """A track cut into segments. All times are in its ticks."""

    track: Track
    cuts: Sequence[int]
    """First sample of each segment, and end of the last one."""
    starts: Sequence[int]
    """Display start of each segment, and end of the last one, in the video's time."""
    lead: int
    """Added to decode times; they then begin at 0, or at the start of the track."""
    media_time: int
    """The media time at time 0, after adding `lead`."""
    stretch: int = 0
    """The first frame is decoded this much earlier, so that there is one at time 0."""
    pull: int = 0
    """The first frame is shown this much earlier, by the length of its leading pictures."""
    silence: Silence = NO_SILENCE

    @property
    def initialization(self) -> bytes:
        """The initialization segment."""
        description = children(self.track.tables)[b"stsd"].payload
        plain = plain_description(description, self.track.kind)
        return initialization(self.track, box(b"stsd", plain), self.media_time)

    def segments(self) -> Iterator[Segment]:
        """The segments, in order."""
        samples, timescale = self.track.samples, self.track.timescale
        keys, shift = samples.key_frames, self.track.timeline.shift - self.lead + self.media_time
        for number, (start, end) in enumerate(pairwise(self.starts)):
            first, last = self.cuts[number], self.cuts[number + 1]
            durations = array("I", samples.durations(first, last))
            offsets = array("I", map(shift.__add__, samples.composition_offsets[first:last]))
            decode_time = samples.decode_times[first] + self.lead
            if number == 0 and self.stretch:
                decode_time -= self.stretch
                durations[0] = min(durations[0] + self.stretch, LARGEST_32_BIT)
                offsets[0] -= self.pull
            within = keys[bisect_left(keys, first) : bisect_left(keys, last)]
            fragment = Fragment(
                decode_time,
                durations,
                samples.sizes[first:last],
                offsets,
                [key - first for key in within],
            )
            head = fragment.head(self.track.id, number + 1) + self.silence.within(first, last)
            bounds = samples.bounds(max(first, self.silence.count), last)
            yield Segment(
                Fraction(start, timescale), Fraction(end - start, timescale), head, *bounds
            )


def initialization(track: Track, description: bytes, media_time: int) -> bytes:
    """The initialization segment of a track; `media_time` is the media time at time 0.

    `description` is its `stsd` box.
    """
    edits = (Edit(0, media_time),) if media_time else ()
    trak = track_box(track, no_sample_tables(description), durations=(0, 0), edits=edits)
    defaults = (track.id, 1, 0, 0, 0)
    trex = full_box(b"trex", 0, 0, *(number.to_bytes(4, "big") for number in defaults))
    return _FILE_TYPE + movie_box(track.timescale, 0, trak, box(b"mvex", trex))


def segmented_video(track: Track) -> SegmentedTrack:
    """A video track cut at key frames; raises `NotIndexable` if HLS cannot express it."""
    if hides_its_beginning(track):
        raise _too_complex()
    count = min(len(track.samples), MOST_REORDERED)
    first_shown = min(track.samples.composition_times(0, count), default=0) + track.timeline.shift
    if first_shown < 0:  # Slightly: the video begins with its first frame.
        shift = track.timeline.shift - first_shown
        track = replace(track, timeline=replace(track.timeline, shift=shift))
    samples, target = _usable(track), target_of(track)
    first = samples.key_frames[0] if samples.key_frames else 0
    cuts, due = [first], samples.decode_times[first] + target
    for key in samples.key_frames:
        is_rest_long = samples.end - samples.decode_times[key] >= target // _SHORTEST_REST
        if samples.decode_times[key] >= due and is_rest_long:
            cuts.append(key)
            due = samples.decode_times[key] + target
    cuts.append(len(samples))
    shown = [
        min(samples.composition_times(*span)) + track.timeline.shift for span in pairwise(cuts)
    ]
    begin = max(shown[0], 0)
    # Leading pictures of the first key frame cannot be decoded: the key frame is shown instead.
    pull = track.shown_at(first) - begin if begin else 0
    shown[0] = 0
    lead = begin - samples.decode_times[first]
    media_time = _media_time(track, lead)
    return SegmentedTrack(
        track, cuts, _ascending((*shown, track.end)), lead, media_time, stretch=begin, pull=pull
    )


def segmented_sound(track: Track, times: Iterable[Fraction] = ()) -> SegmentedTrack:
    """An audio track cut near `times`, the starts of the video's segments.

    After the last of them, or without any, segments have their usual length. Silence is added
    before audio that begins late.
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
            break  # The rest is so short that it joins the last segment.
        cuts.append(cut)
    shown = [0, *(max(times_of[cut] + shift, 0) for cut in cuts[1:])]
    lead = max(shift, -times_of[first])
    starts = _ascending((*shown, track.end))
    media_time = _media_time(track, lead)
    return SegmentedTrack(track, [*cuts, last], starts, lead, media_time, silence=silence)


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
    """Minimum length of a segment, in ticks."""
    return max(TARGET_SECONDS * track.timescale, track.samples.ticks // MOST_SEGMENTS)


def _ascending(times: Iterable[int]) -> array[int]:
    """The times, made non-descending: in damaged files they are not."""
    return array("q", accumulate(times, max))


def _media_time(track: Track, lead: int) -> int:
    """The smallest media time for which no composition offset is negative."""
    offsets, shift = track.samples.composition_offsets, track.timeline.shift - lead
    media_time = max(-shift - min(offsets), 0)
    if max(offsets) + shift + media_time > LARGEST_32_BIT:
        raise damaged("frames are decoded too long before they are shown")
    return media_time


# ---- renditions ----------------------------------------------------------------------------------

# Cuts a video track into segments that are encoded independently of each other.
#
# A segment has the frames that are shown from its start up to its end. It starts at a key frame, so
# that little else has to be decoded; the leading pictures of that key frame, which are shown before
# it, belong to the previous segment. Where key frames are rare, it starts at any frame.
#
# The decode time of a segment is the time at which its first frame is shown. Frames are shown
# `delay` later than their composition time, which an edit list compensates. So segments that were
# encoded independently follow each other without overlap, in any frame order the encoder chooses.


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

    def lacking_key_frames(self, made: Set[int]) -> tuple[range, ...]:
        """Ranges of ticks with frames that refer to a key frame that is missing in `made`.

        Decoders output such frames anyway, in grey. A leading picture refers to the previous key
        frame, too. Key frames that are not shown are assumed to be decoded.
        """
        times = list(map(add, self.samples.decode_times, self.samples.composition_offsets))
        keys = self.samples.key_frames
        shown = (key for key in keys if self.start <= times[key] < self.end)
        lost = {
            key
            for key in shown
            if times[key] not in made and not any(times[key] in run for run in self.unseen)
        }
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
        """How much later than its time a frame is shown; compensated by an edit list.

        Enough for the encoder's frame order at the usual frame rate.
        """
        rate = self.track.frame_rate or 1
        return max(round(_REORDERED * self.track.timescale / rate), 2 * _REORDERED)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def excerpt(self, number: int) -> SegmentExcerpt:
        """The samples to decode for a segment, counted from 1."""
        start, end = self.starts[number - 1], self.starts[number]
        track, samples, keys = self.track, self.track.samples, self.track.samples.key_frames
        first, last = track.key_frame_before(Fraction(start, track.timescale)), len(samples)
        # Of the frames decoded after a key frame, only its leading pictures are shown before it.
        after = bisect_left(keys, end, key=track.shown_at)
        if after < len(keys):
            last = min(keys[after] + MOST_REORDERED, last)
        while last > first + 1 and track.shown_at(last - 1) >= end:
            last -= 1
        last = max(last, first + 1)
        begin = samples.decode_times[first]
        within = keys[bisect_left(keys, first) : bisect_left(keys, last)]
        chosen = Samples(
            samples.offsets[first:last],
            samples.sizes[first:last],
            array("q", (time - begin for time in samples.decode_times[first:last])),
            samples.composition_offsets[first:last],
            array("I", (key - first for key in within)),
            (samples.decode_times[last] if last < len(samples) else samples.end) - begin,
        )
        begin += track.timeline.shift
        near = (run for run in track.unseen if run.stop > start and run.start < end)
        unseen = tuple(range(run.start - begin, run.stop - begin) for run in near)
        if number == 1 and track.is_h264:  # Its leading pictures refer to missing frames.
            start = max(start, track.shown_at(first))
        return SegmentExcerpt(chosen, begin, start - begin, end - begin, unseen)

    def segment(self, number: int, pictures: Track, begin: int) -> Fragment:
        """The encoded frames of a segment; `begin` is the tick of the video at their time 0."""
        count = len(pictures.samples)
        times = [begin + pictures.shown_at(sample) for sample in range(count)]
        start, end = self.starts[number - 1], self.starts[number]
        times[0] = start  # It is later if earlier frames are missing, as in a damaged video.
        # Decode times are the sorted times, but each at most `delay` after its frame is shown.
        latest = [time + self.delay for time in times]
        for place in range(count - 2, -1, -1):
            latest[place] = min(latest[place], latest[place + 1] - 1)
        decoded = [min(pair) for pair in zip(sorted(times), latest, strict=True)]
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
        stsd = Fields(children(pictures.tables)[b"stsd"].payload)
        header = stsd.take(8)
        entry = next(boxes_in(stsd.rest()), None)
        if entry is None or entry.kind != b"avc1":
            raise NotIndexable("not_h264", "The encoder wrote something other than H.264.")
        parts = boxes_in(entry.raw[_VISUAL_HEADER:])
        kept = (each.raw for each in parts if each.kind in _KEPT_DESCRIPTIONS)
        avc1 = box(b"avc1", entry.raw[8:_VISUAL_HEADER], *kept)
        return initialization(pictures, box(b"stsd", header, avc1), self.delay)


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
    samples = track.samples
    possible = [
        key
        for key, end in pairwise(chain(keys, (len(samples),)))
        # It has no leading pictures.
        if min(samples.composition_times(key, min(end, key + MOST_REORDERED)))
        >= samples.composition_time(key)
    ]
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


def _evenly(numbers: Sequence[int], most: int) -> Sequence[int]:
    """The numbers, or an even selection of `most` of them."""
    if len(numbers) <= most:
        return numbers
    return [numbers[place * len(numbers) // most] for place in range(most)]
