"""Edit lists: which part of a track is shown when (ISO/IEC 14496-12, section 8.6.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from app.media.index.boxes import LARGEST_64_BIT, Box, Fields, box, damaged, full_box

MAX_EDITS = 1000
"""Further ones are ignored."""

_LATEST_TICK = 1 << 60


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
    def is_empty(self) -> bool:
        """Whether nothing is shown meanwhile."""
        return self.media_time == -1


def read_edits(elst: Box | None) -> tuple[Edit, ...]:
    """The entries of an `elst` box; none if there is no box."""
    if elst is None:
        return ()
    fields = Fields(elst.payload)
    version, _ = fields.version_and_flags()
    size = 8 if version == 1 else 4
    count = min(fields.unsigned(4), fields.remaining // (2 * size + 4), MAX_EDITS)
    read = (
        Edit(fields.unsigned(size), fields.signed(size), fields.unsigned(4)) for _ in range(count)
    )
    return tuple(edit for edit in read if -1 <= edit.media_time < _LATEST_TICK > edit.duration)


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

        def rescaled(ticks: int) -> int:
            rounded = (2 * ticks * timescale + movie_timescale) // (2 * movie_timescale)
            if rounded > _LATEST_TICK:
                raise damaged("an edit lasts longer than any film")
            return rounded

        shown = [edit for edit in edits if not edit.is_empty]
        if not shown:
            return cls(0, None, is_simple=True)
        delay = sum(edit.duration for edit in takewhile(lambda edit: edit.is_empty, edits))
        total = sum(edit.duration for edit in edits)
        return cls(
            rescaled(delay) - shown[0].media_time,
            rescaled(total) if edits[-1].duration else None,
            is_simple=len(shown) == 1,
        )
