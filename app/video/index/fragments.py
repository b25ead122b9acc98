"""Fragmented MP4, read and written: samples are described in `moof` boxes between the media.

ISO/IEC 14496-12, section 8.8. Recorders write such files so that a power failure loses only a few
seconds, and websites so that playback can start early.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, repeat
from operator import and_, not_

from app.video.index.boxes import (
    Box,
    Fields,
    FileBox,
    NotIndexable,
    ReadAt,
    big_endian,
    box,
    box_header,
    boxes_in,
    children,
    descend,
    full_box,
    numbers,
)
from app.video.index.samples import Samples, most_samples, refuse_beyond, too_many_samples

MAX_BYTES = 256 << 20
"""Total size of all `moof` boxes; a file with more is not indexed. 2 hours need 8 MiB."""

_RUN = 20
"""Entries that a run counts as, in addition to its samples: a run of one sample takes 17 us."""

_LONGEST_STEP = 1 << 31
"""Ticks from one sample to the next, or of a gap. Longer ones are damage, and are shortened."""

_LATEST_TIME = 1 << 62
_IS_NO_KEY_FRAME = 0x1_0000

# Flags of tfhd (section 8.8.7).
_BASE, _DESCRIPTION, _BASE_IS_MOOF = 0x1, 0x2, 0x2_0000
_DEFAULT_DURATION, _DEFAULT_SIZE, _DEFAULT_FLAGS = 0x8, 0x10, 0x20

# Flags of trun (section 8.8.8).
_DATA_OFFSET, _FIRST_FLAGS = 0x1, 0x4
_DURATION, _SIZE, _FLAGS, _COMPOSITION_OFFSET = 0x100, 0x200, 0x400, 0x800
_COLUMNS = (_DURATION, _SIZE, _FLAGS, _COMPOSITION_OFFSET)


@dataclass(frozen=True, slots=True)
class _Defaults:
    """Values for samples that have none of their own."""

    duration: int = 0
    size: int = 0
    flags: int = 0


class FragmentedMovie:
    """Collects the samples of consecutive `moof` boxes, by track."""

    def __init__(
        self, moov: Box, samples: Mapping[int, Samples], *, length: int, most_entries: int
    ) -> None:
        """Begin with the samples of `moov`; the file has `length` bytes.

        `add` raises `NotIndexable`, and like `refuse_beyond` for more samples and runs than
        `most_entries`.
        """
        self._tracks = {number: _Track(each) for number, each in samples.items()}
        self._defaults: dict[int, _Defaults] = {}
        # In the `trex` boxes of the only `mvex` box (section 8.8.1).
        for trex in boxes_in(descend(moov.payload, b"mvex") or memoryview(b"")):
            if trex.kind == b"trex":
                fields = Fields(trex.payload)
                fields.version_and_flags()
                number, _ = fields.unsigned(4), fields.unsigned(4)
                self._defaults[number] = _Defaults(*(fields.unsigned(4) for _ in range(3)))
        self._length = length
        self._room = most_samples(length) - sum(map(len, samples.values()))
        self._most_entries = most_entries
        self._entries = 0

    def samples(self) -> dict[int, tuple[Samples, bool]]:
        """The samples of each track by its id, and whether samples are missing at its end."""
        return {
            number: (track.samples(), track.is_truncated) for number, track in self._tracks.items()
        }

    def add(self, moofs: Iterable[FileBox], read_at: ReadAt) -> None:
        """Add the samples of consecutive `moof` boxes."""
        bytes_left = MAX_BYTES
        for moof in moofs:
            bytes_left -= moof.end - moof.start
            if bytes_left < 0:
                raise NotIndexable("moov_too_large", "The index of the video is too large.")
            payload = memoryview(read_at(moof.payload_start, moof.end - moof.payload_start))
            position = moof.start
            for traf in boxes_in(payload):
                if traf.kind == b"traf":
                    position = self._add_track_fragment(traf, start=moof.start, position=position)

    def _add_track_fragment(self, traf: Box, *, start: int, position: int) -> int:
        """Add a `traf`. Its media starts at `position` by default; returns the end of its media."""
        boxes = children(traf.payload)
        if b"tfhd" not in boxes:
            return position
        header = Fields(boxes[b"tfhd"].payload)
        _, flags = header.version_and_flags()
        number = header.unsigned(4)
        if flags & _BASE:
            position = header.unsigned(8)
        elif flags & _BASE_IS_MOOF:
            position = start
        header.take(4 if flags & _DESCRIPTION else 0)
        defaults = self._defaults.get(number, _Defaults())
        defaults = _Defaults(
            header.unsigned(4) if flags & _DEFAULT_DURATION else defaults.duration,
            header.unsigned(4) if flags & _DEFAULT_SIZE else defaults.size,
            header.unsigned(4) if flags & _DEFAULT_FLAGS else defaults.flags,
        )
        track = self._tracks.get(number)
        if track and b"tfdt" in boxes:
            tfdt = Fields(boxes[b"tfdt"].payload)
            version, _ = tfdt.version_and_flags()
            track.continue_at(min(tfdt.unsigned(8 if version == 1 else 4), _LATEST_TIME))
        base = position
        for trun in boxes_in(traf.payload):
            if trun.kind == b"trun":
                self._take(_TrackRun.count(trun))
                run = _TrackRun.read(trun, defaults, base=base, position=position)
                position = run.end
                if track:
                    track.add(run, length=self._length)
        return position

    def _take(self, count: int) -> None:
        """Count a run of `count` samples against the limits, before it is read."""
        self._room -= count
        self._entries += _RUN + count
        if self._room < 0:
            raise too_many_samples()
        refuse_beyond(self._most_entries, self._entries)


@dataclass(frozen=True, slots=True)
class _TrackRun:
    """The samples of a `trun` box, contiguous from byte `start` to byte `end`."""

    start: int
    end: int
    durations: array[int]
    sizes: array[int]
    flags: array[int]
    composition_offsets: array[int]

    @staticmethod
    def count(trun: Box) -> int:
        """The number of samples that a `trun` box claims."""
        fields = Fields(trun.payload)
        fields.version_and_flags()
        return fields.unsigned(4)

    @classmethod
    def read(cls, trun: Box, defaults: _Defaults, *, base: int, position: int) -> _TrackRun:
        """Its data offset is relative to `base`; without an offset it starts at `position`."""
        fields = Fields(trun.payload)
        _, flags = fields.version_and_flags()
        count = fields.unsigned(4)
        start = base + fields.signed(4) if flags & _DATA_OFFSET else position
        first_flags = fields.unsigned(4) if flags & _FIRST_FLAGS else None
        columns = _columns(fields, flags, count, defaults)
        if first_flags is not None and count:
            columns[2][0] = first_flags
        return cls(
            start,
            start + sum(columns[1]),
            columns[0],
            columns[1],
            columns[2],
            array("i", columns[3].tobytes()),  # signed in version 0 too, as in `ctts`
        )


def _columns(fields: Fields, flags: int, count: int, defaults: _Defaults) -> list[array[int]]:
    """Durations, sizes, flags and composition offsets of the samples of a `trun`."""
    width = sum(1 for column in _COLUMNS if flags & column)
    rows = numbers("I", fields.take(4 * width * count))
    stored = (rows[place::width] for place in range(width))
    values = (defaults.duration, defaults.size, defaults.flags, 0)
    return [
        next(stored) if flags & column else array("I", (value,)) * count
        for column, value in zip(_COLUMNS, values, strict=True)
    ]


class _Track:
    """The growing columns of a track."""

    def __init__(self, samples: Samples) -> None:
        self._offsets = samples.offsets[:]
        self._sizes = samples.sizes[:]
        self._decode_times = samples.decode_times[:]
        self._composition_offsets = samples.composition_offsets[:]
        self._key_frames = array("I", samples.key_frames)
        self._end = samples.end
        self.is_truncated = False

    def continue_at(self, time: int) -> None:
        """Set the decode time of the next sample to `time`, within limits.

        It is not before that of the last sample, nor more than `_LONGEST_STEP` after its end.
        """
        if not self._decode_times:
            self._end = time
        else:
            self._end = min(max(time, self._decode_times[-1]), self._end + _LONGEST_STEP)

    def add(self, run: _TrackRun, *, length: int) -> None:
        """Add the samples that are within a file of `length` bytes."""
        if self.is_truncated or not 0 <= run.start <= length:
            self.is_truncated = True
            return
        places = array("Q", accumulate(run.sizes, initial=run.start))
        count = bisect_right(places, length) - 1
        self.is_truncated = count < len(run.sizes)
        known = len(self._offsets)
        durations = (each if each < _LONGEST_STEP else 1 for each in run.durations[:count])
        times = array("q", accumulate(durations, initial=self._end))
        are_key = map(not_, map(and_, run.flags, repeat(_IS_NO_KEY_FRAME)))
        self._end = times.pop()
        self._offsets.extend(places[:count])
        self._sizes.extend(run.sizes[:count])
        self._decode_times.extend(times)
        self._composition_offsets.extend(run.composition_offsets[:count])
        self._key_frames.extend(compress(range(known, known + count), are_key))

    def samples(self) -> Samples:
        """Returns all added samples."""
        return Samples(
            self._offsets,
            self._sizes,
            self._decode_times,
            self._composition_offsets,
            self._key_frames,
            self._end,
        )


# ---- written fragments ---------------------------------------------------------------------------

_KEY_FRAME = 0x0200_0000
_OTHER_SAMPLE = 0x0101_0000
"""Sample flags (section 8.8.3.1): depends on others, is not a sync sample."""


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
        common = self._default_duration
        tfhd_flags = _BASE_IS_MOOF | _DEFAULT_FLAGS | (0 if common is None else _DEFAULT_DURATION)
        defaults = [self._default_flags] if common is None else [common, self._default_flags]
        track = (
            full_box(
                b"tfhd", 0, tfhd_flags, *(n.to_bytes(4, "big") for n in (track_id, *defaults))
            ),
            full_box(b"tfdt", 1, 0, self.decode_time.to_bytes(8, "big")),
        )
        flags, columns = self._columns()
        rows = array("I", bytes(4 * len(columns) * len(columns[0])))
        for place, column in enumerate(columns):
            rows[place :: len(columns)] = column
        first_flags = _KEY_FRAME.to_bytes(4, "big") if flags & _FIRST_FLAGS else b""
        count, table = len(self.sizes).to_bytes(4, "big"), big_endian(rows)

        def moof(data_offset: int) -> bytes:
            offset = data_offset.to_bytes(4, "big")
            run = full_box(b"trun", 0, flags, count, offset, first_flags, table)
            header = full_box(b"mfhd", 0, 0, number.to_bytes(4, "big"))
            return box(b"moof", header, box(b"traf", *track, run))

        media = box_header(b"mdat", sum(self.sizes))
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
            sample_flags = array("I", (_OTHER_SAMPLE,)) * len(self.sizes)
            for number in self.key_frames:
                sample_flags[number] = _KEY_FRAME
            columns.append(sample_flags)
        if any(self.composition_offsets):
            flags |= _COMPOSITION_OFFSET
            columns.append(self.composition_offsets)
        return flags, columns
