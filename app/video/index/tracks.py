"""A track: one stream of video, audio or text (ISO/IEC 14496-12, sections 8.3 and 8.4)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import add

from app.video.index.boxes import Box, Fields, boxes_in, children, damaged, descend, numbers
from app.video.index.edits import Edit, Timeline, read_edits
from app.video.index.languages import read_language
from app.video.index.sample_entries import KINDS, SampleEntry, TrackKind, read_sample_entry
from app.video.index.samples import Samples, entries, read_samples

_MOST_REORDERED = 1000
"""The sample that is shown last is searched among this many samples at the end of a track."""


@dataclass(frozen=True, slots=True)
class Track:
    """A track and its samples."""

    id: int
    is_enabled: bool
    kind: TrackKind
    language: str
    """BCP 47; "und" if the file does not say."""
    title: str
    timescale: int
    """Ticks per second."""
    rotation: int
    """Degrees clockwise by which a player rotates the video: 0, 90, 180 or 270."""
    references: Mapping[bytes, int]
    """Ids of other tracks, by reference type (section 8.3.3)."""
    entry: SampleEntry
    edits: tuple[Edit, ...]
    timeline: Timeline
    samples: Samples
    is_truncated: bool
    """Whether samples are missing at its end."""
    box: Box
    """The `trak` box."""
    unseen: tuple[range, ...] = ()
    """Ranges of ticks of the video's time with frames that an edit list hides, ascending.

    Each of these frames is shown for the shortest possible time."""
    stored: Track | None = None
    """The track before its edits, if these were applied to `samples`."""

    def with_fragments(
        self, samples: Samples, *, is_truncated: bool, movie_timescale: int
    ) -> Track:
        """The track with these samples. Its last edit is extended to the new end of the track."""
        edits = self.edits[:-1] + tuple(replace(last, duration=0) for last in self.edits[-1:])
        timeline = Timeline.of(edits, movie_timescale=movie_timescale, timescale=self.timescale)
        return replace(
            self,
            samples=samples,
            is_truncated=self.is_truncated or is_truncated,
            edits=edits,
            timeline=timeline,
        )

    @property
    def tables(self) -> memoryview:
        """Payload of its `stbl` box."""
        return descend(self.box.payload, b"mdia", b"minf", b"stbl") or memoryview(b"")

    @property
    def description(self) -> memoryview:
        """Its `stsd` box."""
        return children(self.tables)[b"stsd"].raw

    @property
    def has_one_description(self) -> bool:
        """Whether `entry` describes all its samples."""
        stsc = children(self.tables).get(b"stsc")
        return stsc is None or set(numbers("I", entries(stsc, 12))[2::3]) <= {1}

    @property
    def codec(self) -> str:
        """RFC 6381 codec name, such as "avc1.64001f"."""
        return self.entry.codec

    @property
    def width(self) -> int:
        """Square pixels, as shown."""
        return self._size_shown[0]

    @property
    def height(self) -> int:
        """Square pixels, as shown."""
        return self._size_shown[1]

    @property
    def _size_shown(self) -> tuple[int, int]:
        width = round(self.entry.width * self.entry.pixel_aspect)
        return (self.entry.height, width) if self.rotation % 180 else (width, self.entry.height)

    @property
    def sample_rate(self) -> int:
        """Audio sample rate in Hz."""
        return self.entry.sample_rate or (self.timescale if self.kind == "audio" else 0)

    @property
    def frame_rate(self) -> Fraction:
        """Samples per second, on average, before its edits."""
        track = self.stored or self
        ticks = track.samples.ticks
        return Fraction(len(track.samples) * track.timescale, ticks) if ticks > 0 else Fraction()

    @property
    def bit_rate(self) -> int:
        """Bits per second, on average, before its edits."""
        track = self.stored or self
        seconds = Fraction(track.samples.ticks, track.timescale)
        return round(8 * sum(track.samples.sizes) / seconds) if seconds > 0 else 0

    @property
    def is_h264(self) -> bool:
        """Whether its samples are H.264."""
        return self.entry.fourcc.startswith("avc")

    @property
    def is_hevc(self) -> bool:
        """Whether its samples are HEVC."""
        return self.entry.fourcc.startswith(("hvc", "hev"))

    def shown_at(self, number: int) -> int:
        """Tick of the video's time at which a sample is shown; below 0 if it is not shown."""
        return self.samples.composition_time(number) + self.timeline.shift

    def key_frame_before(self, time: Fraction) -> int:
        """Number of the last key frame shown at or before `time` seconds, or of the first one.

        0 without key frames.
        """
        keys, tick = self.samples.key_frames, math.floor(time * self.timescale)
        return keys[max(bisect_right(keys, tick, key=self.shown_at) - 1, 0)] if keys else 0

    @property
    def end(self) -> int:
        """Tick of the video's time at which its last sample ends."""
        end = max(self.media_end + self.timeline.shift, 0)
        return end if self.timeline.end is None else min(end, self.timeline.end)

    @property
    def media_end(self) -> int:
        """Composition time at which its last sample ends, before its edits."""
        count, samples = len(self.samples), self.samples
        first = max(count - _MOST_REORDERED, 0)
        ends = map(add, samples.composition_times(first, count), samples.durations(first, count))
        return max(ends, default=0)

    @property
    def duration(self) -> Fraction:
        """Seconds from the start of the video to the end of this track."""
        return Fraction(self.end, self.timescale)


def read_track(trak: Box, *, movie_timescale: int, length: int, most_samples: int) -> Track:
    """Reads a `trak` box of a file of `length` bytes; raises `NotIndexable`."""
    boxes = children(trak.payload)
    media = children(_required(boxes, b"mdia"))
    information = children(_required(media, b"minf"))
    tables = children(_required(information, b"stbl"))

    header = Fields(_required(boxes, b"tkhd"))
    version, flags = header.version_and_flags()
    header.take(16 if version == 1 else 8)  # creation and modification time
    track_id = header.unsigned(4)
    header.take(12 if version == 1 else 8)  # duration
    header.take(16)  # layer, group, volume
    across, along = header.signed(4), header.signed(4)
    quarter_turns = round(math.atan2(along, across) / (math.pi / 2)) % 4

    header = Fields(_required(media, b"mdhd"))
    version, _ = header.version_and_flags()
    header.take(16 if version == 1 else 8)  # creation and modification time
    timescale = header.unsigned(4)
    if timescale == 0:
        raise damaged("a track has no timescale")
    header.take(8 if version == 1 else 4)  # duration
    language = read_language(header.unsigned(2), media.get(b"elng"))

    handler = _required(media, b"hdlr")
    kind = KINDS.get(bytes(handler[8:12]), "other")
    entry = read_sample_entry(_required(tables, b"stsd"), kind)
    _require_own_media(information)
    samples, is_truncated = read_samples(
        tables, length=length, most=most_samples, is_sound=kind == "audio"
    )
    edits = read_edits(boxes.get(b"edts"))
    name = descend(boxes[b"udta"].payload, b"name") if b"udta" in boxes else None
    references = children(boxes[b"tref"].payload) if b"tref" in boxes else {}
    return Track(
        track_id,
        bool(flags & 1),
        kind,
        language,
        "" if name is None else bytes(name[:200]).decode("utf-8", "replace").strip("\0 "),
        timescale,
        quarter_turns * 90,
        {kind: int.from_bytes(box.payload[:4], "big") for kind, box in references.items()},
        entry,
        edits,
        Timeline.of(edits, movie_timescale=movie_timescale, timescale=timescale),
        samples,
        is_truncated,
        trak,
    )


def is_played(trak: Box) -> bool:
    """Whether a `trak` box is a video or audio track; False if its handler cannot be read."""
    handler = descend(trak.payload, b"mdia", b"hdlr")
    return handler is not None and KINDS.get(bytes(handler[8:12])) in {"video", "audio"}


def _required(boxes: Mapping[bytes, Box], kind: bytes) -> memoryview:
    if kind not in boxes:
        raise damaged(f"a track has no {kind.decode()} box")
    return boxes[kind].payload


def _require_own_media(information: Mapping[bytes, Box]) -> None:
    """Raise `NotIndexable` if the samples are in another file, which is never opened (8.7.2)."""
    dref = descend(information[b"dinf"].payload, b"dref") if b"dinf" in information else None
    if dref is None or len(dref) < 8:
        return
    reference = next(boxes_in(dref[8:]), None)
    if reference is not None and len(reference.payload) > 4 and not reference.payload[3] & 1:
        raise damaged("a track has its media in another file")
