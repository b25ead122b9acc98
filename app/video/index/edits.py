"""Edit lists: which part of a track is played when (ISO/IEC 14496-12, section 8.6.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from app.video.index.boxes import LARGEST_64_BIT, Box, Fields, box, damaged, descend, full_box

MAX_EDITS = 1000
"""Of further edits one is read and the others are ignored; such a video has only `play.mp4`."""

LATEST_TICK = 1 << 60


@dataclass(frozen=True, slots=True)
class Edit:
    """One entry of an edit list."""

    duration: int
    """Ticks of the movie's timescale; 0 for the rest of the track."""
    media_time: int
    """Start time in the media, in ticks of the track's timescale; -1 for an empty edit."""
    rate: int = 1 << 16
    """16.16 fixed point."""

    @property
    def is_at_normal_speed(self) -> bool:
        """Whether the media plays at its normal rate."""
        return self.rate == 1 << 16

    @property
    def is_empty(self) -> bool:
        """Whether this is an empty edit: no media is played during it."""
        return self.media_time == -1


def read_edits(edts: Box | None) -> tuple[Edit, ...]:
    """The entries of the `elst` box in an `edts` box; empty if there is no such box."""
    elst = descend(edts.payload, b"elst") if edts else None
    if elst is None:
        return ()
    fields = Fields(elst)
    version, _ = fields.version_and_flags()
    size = 8 if version == 1 else 4
    count = min(fields.unsigned(4), fields.remaining // (2 * size + 4), MAX_EDITS + 1)
    read = (
        Edit(fields.unsigned(size), fields.signed(size), fields.unsigned(4)) for _ in range(count)
    )
    return tuple(edit for edit in read if -1 <= edit.media_time < LATEST_TICK > edit.duration)


def edit_list(edits: Sequence[Edit]) -> bytes:
    """The `edts` box with these entries; b"" if there are none."""
    if not edits:
        return b""
    entries = b"".join(
        min(edit.duration, LARGEST_64_BIT).to_bytes(8, "big")
        + edit.media_time.to_bytes(8, "big", signed=True)
        + edit.rate.to_bytes(4, "big")
        for edit in edits
    )
    return box(b"edts", full_box(b"elst", 1, 0, len(edits).to_bytes(4, "big"), entries))


def fitted(edits: Sequence[Edit], duration: int) -> tuple[Edit, ...]:
    """The edits cut to a track duration of `duration` ticks of the movie's timescale."""
    kept: list[Edit] = []
    for edit in edits:
        shown = min(edit.duration or duration, duration)
        if shown > 0:
            kept.append(Edit(shown, edit.media_time, edit.rate))
        duration -= shown
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Maps times of a track to times of the video, in ticks of the track's timescale."""

    shift: int
    """Added to composition times, within the first non-empty edit."""
    end: int | None
    """End of the track; None for the end of its samples."""
    is_simple: bool
    """Whether at most one edit is not empty, as in nearly every edit list."""

    @classmethod
    def of(cls, edits: Sequence[Edit], *, movie_timescale: int, timescale: int) -> Timeline:
        """The timeline of an edit list; raises `NotIndexable` for times beyond `LATEST_TICK`."""
        shown = [edit for edit in edits if not edit.is_empty]
        if not shown:
            return cls(0, None, is_simple=True)
        delay = sum(edit.duration for edit in takewhile(lambda edit: edit.is_empty, edits))
        total = sum(edit.duration for edit in edits)
        return cls(
            _rescaled(delay, movie_timescale, timescale) - shown[0].media_time,
            _rescaled(total, movie_timescale, timescale) if edits[-1].duration else None,
            is_simple=len(shown) == 1,
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a track that is played from `start` to `end`."""

    start: int
    end: int
    """`LATEST_TICK` for the end of the samples."""
    media_time: int
    """Media time at which it starts."""

    @property
    def media_end(self) -> int:
        """Media time at which it ends, exclusive."""
        return self.media_time + self.end - self.start


def stretches(
    edits: Sequence[Edit], *, movie_timescale: int, timescale: int, factor: int
) -> Iterator[Stretch]:
    """Yields the non-empty edits in order, in ticks of 1/`factor` of the track's tick.

    Raises `NotIndexable` for times beyond `LATEST_TICK`.
    """
    elapsed = 0
    for number, edit in enumerate(edits, start=1):
        start, elapsed = elapsed, elapsed + edit.duration
        is_open = number == len(edits) and not edit.duration
        if not edit.is_empty and (edit.duration or is_open):
            yield Stretch(
                _rescaled(start, movie_timescale, factor * timescale),
                LATEST_TICK if is_open else _rescaled(elapsed, movie_timescale, factor * timescale),
                factor * edit.media_time,
            )


def _rescaled(ticks: int, movie_timescale: int, timescale: int) -> int:
    rounded = (2 * ticks * timescale + movie_timescale) // (2 * movie_timescale)
    if rounded > LATEST_TICK:
        raise damaged("an edit lasts longer than any video")
    return rounded
