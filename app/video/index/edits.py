"""Edit lists: which part of a track is shown when (ISO/IEC 14496-12, section 8.6.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from app.video.index.boxes import LARGEST_64_BIT, Box, Fields, box, damaged, descend, full_box

MAX_EDITS = 1000
"""Of those beyond, one is read and the others are ignored; such a film has only `play.mp4`."""

LATEST_TICK = 1 << 60


@dataclass(frozen=True, slots=True)
class Edit:
    """One entry of an edit list."""

    duration: int
    """Ticks of the movie's timescale; 0 for all that follows."""
    media_time: int
    """Ticks of the track's timescale at which the media begins; -1 to show nothing."""
    rate: int = 1 << 16
    """16.16 fixed point."""

    @property
    def is_at_normal_speed(self) -> bool:
        """Whether a second of the media lasts a second."""
        return self.rate == 1 << 16

    @property
    def is_empty(self) -> bool:
        """Whether nothing is shown meanwhile."""
        return self.media_time == -1


def read_edits(edts: Box | None) -> tuple[Edit, ...]:
    """The entries of the `elst` box in an `edts` box; none if there is no box."""
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
    """The `edts` box with these entries; nothing for none."""
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
    """The edits of a track that now lasts `duration` ticks of the movie's timescale."""
    kept: list[Edit] = []
    for edit in edits:
        shown = min(edit.duration or duration, duration)
        if shown > 0:
            kept.append(Edit(shown, edit.media_time, edit.rate))
        duration -= shown
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Timeline:
    """How the times of a track map to those of the film, in ticks of the track's timescale."""

    shift: int
    """What to add to composition times, within the first stretch that is shown."""
    end: int | None
    """When the track ends; None for the end of its samples."""
    is_simple: bool
    """Whether there is no further stretch: nearly every edit list has only one."""

    @classmethod
    def of(cls, edits: Sequence[Edit], *, movie_timescale: int, timescale: int) -> Timeline:
        """The timeline that an edit list makes; raises `NotIndexable` beyond any film's time."""
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
    """A part of a track that is shown from `start` to `end`."""

    start: int
    end: int
    """`LATEST_TICK` for the end of the samples."""
    media_time: int
    """What is shown first, by the times of the samples."""

    @property
    def media_end(self) -> int:
        """What is not shown any more, by the times of the samples."""
        return self.media_time + self.end - self.start

    def shows(self, time: int) -> bool:
        """Whether what has this time in the media is shown."""
        return self.media_time <= time < self.media_end


def stretches(
    edits: Sequence[Edit], *, movie_timescale: int, timescale: int, factor: int
) -> Iterator[Stretch]:
    """What an edit list shows, in order, in ticks of which `factor` make one of the track's.

    Raises `NotIndexable` beyond any film's time.
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
        raise damaged("an edit lasts longer than any film")
    return rounded
