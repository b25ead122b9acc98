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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise

from app.core.ranges import ByteRange
from app.video.index.boxes import (
    LARGEST_32_BIT,
    NotIndexable,
    big_endian,
    box,
    children,
    damaged,
    full_box,
    media_header,
)
from app.video.index.edits import Edit
from app.video.index.flattened import PREROLL_SECONDS, hides_its_beginning
from app.video.index.muxing import movie_box, no_sample_tables, track_box
from app.video.index.sample_entries import plain_description
from app.video.index.samples import MOST_REORDERED, Samples
from app.video.index.tracks import Track
from app.video.index.virtual_file import Piece

# ---- fragment boxes ------------------------------------------------------------------------------

# The head of a fragment: `moof` and the header of `mdat` (ISO/IEC 14496-12, section 8.8).


_KEY_FRAME = 0x0200_0000
_OTHER_SAMPLE = 0x0101_0000
"""Sample flags (section 8.8.3.1): depends on others, is not a sync sample."""

# Flags of tfhd and trun (sections 8.8.7 and 8.8.8).
_DEFAULT_DURATION, _DEFAULT_FLAGS, _BASE_IS_MOOF = 0x8, 0x20, 0x2_0000
_DATA_OFFSET, _FIRST_FLAGS = 0x1, 0x4
_DURATION, _SIZE, _FLAGS, _COMPOSITION_OFFSET = 0x100, 0x200, 0x400, 0x800


@dataclass(frozen=True, slots=True)
class Fragment:
    """Consecutive samples of one track, in decode order."""

    decode_time: int
    """Decode time of the first sample, in ticks."""
    durations: array[int]
    """Type I."""
    sizes: array[int]
    """Type I."""
    composition_offsets: array[int]
    """Type I: never negative."""
    key_frames: Sequence[int]
    """Ascending numbers of the samples that are key frames."""

    def head(self, track_id: int, number: int) -> bytes:
        """The bytes before the media; fragments of a track are numbered from 1."""
        flags, columns = self._columns()
        track = (
            _track_header(track_id, self._default_duration, self._default_flags),
            full_box(b"tfdt", 1, 0, self.decode_time.to_bytes(8, "big")),
        )
        first_flags = _KEY_FRAME.to_bytes(4, "big") if flags & _FIRST_FLAGS else b""
        count, table = len(self.sizes).to_bytes(4, "big"), big_endian(_interleaved(columns))

        def moof(data_offset: int) -> bytes:
            offset = data_offset.to_bytes(4, "big")
            run = full_box(b"trun", 0, flags, count, offset, first_flags, table)
            header = full_box(b"mfhd", 0, 0, number.to_bytes(4, "big"))
            return box(b"moof", header, box(b"traf", *track, run))

        media = media_header(sum(self.sizes))
        return moof(len(moof(0)) + len(media)) + media

    @property
    def _default_duration(self) -> int | None:
        """The common duration of all samples, if there is one."""
        first = self.durations[0]
        return first if self.durations.count(first) == len(self.durations) else None

    @property
    def _default_flags(self) -> int:
        return _KEY_FRAME if len(self.key_frames) == len(self.sizes) else _OTHER_SAMPLE

    def _columns(self) -> tuple[int, list[array[int]]]:
        """Flags of the `trun`, and the columns of its table."""
        flags, columns = _DATA_OFFSET | _SIZE, []
        if self._default_duration is None:
            flags |= _DURATION
            columns.append(self.durations)
        columns.append(self.sizes)
        if self._default_flags == _OTHER_SAMPLE and list(self.key_frames) == [0]:
            flags |= _FIRST_FLAGS
        elif self._default_flags == _OTHER_SAMPLE and self.key_frames:
            flags |= _FLAGS
            columns.append(self._sample_flags())
        if any(self.composition_offsets):
            flags |= _COMPOSITION_OFFSET
            columns.append(self.composition_offsets)
        return flags, columns

    def _sample_flags(self) -> array[int]:
        column = array("I", (_OTHER_SAMPLE,)) * len(self.sizes)
        for number in self.key_frames:
            column[number] = _KEY_FRAME
        return column


def _track_header(track_id: int, duration: int | None, sample_flags: int) -> bytes:
    flags = _BASE_IS_MOOF | _DEFAULT_FLAGS | (0 if duration is None else _DEFAULT_DURATION)
    numbers = (track_id, duration, sample_flags)
    fields = (number.to_bytes(4, "big") for number in numbers if number is not None)
    return full_box(b"tfhd", 0, flags, *fields)


def _interleaved(columns: Sequence[array[int]]) -> array[int]:
    """Transposes `columns` into rows."""
    table = array("I", bytes(4 * len(columns) * len(columns[0])))
    for number, column in enumerate(columns):
        table[number :: len(columns)] = column
    return table


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
    return int(late / (packet.ticks if packet else Fraction(track.timescale, _ENCODED_A_SECOND)))


def with_silence(track: Track, first: int) -> tuple[Track, Silence]:
    """The track from its sample `first` on, with silence from time 0 up to that sample.

    Without silence if none is known for its codec. Silence begins within one packet of time 0.
    """
    packet, late = _packet(track), _lateness(track, first)
    samples = track.samples
    if packet is None or late <= 0:
        return track, NO_SILENCE
    count = int(late / packet.ticks)
    begin, (ticks, parts) = samples.decode_times[first], packet.ticks.as_integer_ratio()
    times = (begin - (2 * number * ticks + parts) // (2 * parts) for number in range(count, 0, -1))
    longer = Samples(
        array("Q", bytes(8 * count)) + samples.offsets[first:],
        array("I", (len(packet.data),)) * count + samples.sizes[first:],
        array("q", times) + samples.decode_times[first:],
        array("i", bytes(4 * count)) + samples.composition_offsets[first:],
        range(count + len(samples) - first),
        samples.end,
    )
    return replace(track, samples=longer), Silence(packet.data, count)


@dataclass(frozen=True, slots=True)
class _Packet:
    data: bytes
    ticks: Fraction


def _lateness(track: Track, first: int) -> int:
    """Start of its sample `first` in the video's time, in ticks."""
    return track.samples.decode_times[first] + track.timeline.shift


def _packet(track: Track) -> _Packet | None:
    """A silent packet and its duration; None if none is known for the track."""
    codec = track.codec.lower()
    if codec == "opus" and track.channels <= 2:
        return _Packet(_OPUS, _OPUS_SECONDS * track.timescale)
    if codec not in _AAC_CODECS or track.channels not in _AAC:
        return None
    times = track.samples.decode_times[: _MEASURED + 1]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    ticks = Fraction(times[-1] - times[0], len(times) - 1)
    if ticks * _MOST_A_SECOND < track.timescale:
        return None
    return _Packet(bytes.fromhex(_AAC[track.channels]), ticks)


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
    track = _from_its_first_picture(track)
    samples = _usable(track)
    first = samples.key_frames[0] if samples.key_frames else 0
    cuts = _cuts_at_key_frames(samples, first, len(samples), target_of(track))
    shown = [
        min(samples.composition_times(*span)) + track.timeline.shift for span in pairwise(cuts)
    ]
    begin = max(shown[0], 0)
    first_shown = next(samples.composition_times(first, first + 1)) + track.timeline.shift
    # Leading pictures of the first key frame cannot be decoded: the key frame is shown instead.
    pull = first_shown - begin if begin else 0
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


def _from_its_first_picture(track: Track) -> Track:
    """The track with no frame before time 0; raises `NotIndexable` if an edit hides some."""
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
    """Minimum length of a segment, in ticks."""
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
    """The times, made non-descending: in damaged files they are not."""
    return array("q", accumulate(times, max))


def _media_time(track: Track, lead: int) -> int:
    """The smallest media time for which no composition offset is negative."""
    offsets, shift = track.samples.composition_offsets, track.timeline.shift - lead
    media_time = max(-shift - min(offsets), 0)
    if max(offsets) + shift + media_time > LARGEST_32_BIT:
        raise damaged("pictures are decoded too long before they are shown")
    return media_time
