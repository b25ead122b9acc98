"""The head of a fragment, `moof` and the header of its `mdat` (ISO/IEC 14496-12, section 8.8)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from app.video.index.boxes import big_endian, box, full_box, media_header

_KEY_FRAME = 0x0200_0000
_OTHER_SAMPLE = 0x0101_0000
"""Flags of samples (section 8.8.3.1): what depends on others, and is no place to begin."""

# Flags of tfhd and trun (sections 8.8.7 and 8.8.8).
_DEFAULT_DURATION, _DEFAULT_FLAGS, _BASE_IS_MOOF = 0x8, 0x20, 0x2_0000
_DATA_OFFSET, _FIRST_FLAGS = 0x1, 0x4
_DURATION, _SIZE, _FLAGS, _COMPOSITION_OFFSET = 0x100, 0x200, 0x400, 0x800


@dataclass(frozen=True, slots=True)
class Fragment:
    """Samples of one track that follow each other in decode order."""

    decode_time: int
    """Ticks, of the first sample."""
    durations: array[int]
    """Type I."""
    sizes: array[int]
    """Type I."""
    composition_offsets: array[int]
    """Type I: none is negative."""
    key_frames: Sequence[int]
    """Which of the samples are, ascending."""

    def head(self, track_id: int, number: int) -> bytes:
        """The bytes before the samples; fragments of a track are numbered from 1."""
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
        """The duration of all samples, if it is the same."""
        first = self.durations[0]
        return first if self.durations.count(first) == len(self.durations) else None

    @property
    def _default_flags(self) -> int:
        return _KEY_FRAME if len(self.key_frames) == len(self.sizes) else _OTHER_SAMPLE

    def _columns(self) -> tuple[int, list[array[int]]]:
        """Flags of the run, and the columns of its table."""
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
    """The rows of a table of which `columns` are the columns."""
    table = array("I", bytes(4 * len(columns) * len(columns[0])))
    for number, column in enumerate(columns):
        table[number :: len(columns)] = column
    return table
