"""Knows how much of what the clock went on by was no time in which a client could have come back.

A machine without a battery starts with a wrong clock and sets it right later, an operator sets it
by hand, a machine or a server is off for weeks. The clock is compared with the time since the
machine started (CLOCK_BOOTTIME), which nobody sets, and which goes on while the machine sleeps.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.storage.boot_marker import BOOT_ID

COUNTED_GAP = timedelta(hours=1)
"""The most that counts between two looks, which are a minute apart while the server runs. More than
nothing, so that uploads also expire on a server that restarts all the time."""

TOLERANCE = timedelta(seconds=1)
"""Smaller differences are how the two clocks are read, one after the other."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Both clocks at one moment; `since_boot` in seconds, of the boot that the id names."""

    boot_id: str
    since_boot: float
    wall: datetime

    def uncounted_since(self, before: Reading) -> timedelta:
        """How much further the wall clock went than counts; negative where it was set back."""
        shown = passed = self.wall - before.wall
        if self.boot_id == before.boot_id:
            passed = timedelta(seconds=self.since_boot - before.since_boot)
        uncounted = shown - min(max(passed, timedelta(0)), COUNTED_GAP)
        return uncounted if abs(uncounted) > TOLERANCE else timedelta(0)


def read_clocks() -> Reading:
    """What they show now."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Reading(BOOT_ID.read_text().strip(), since_boot, datetime.now(UTC))


class IdleClock:
    """Compares each look with the one before, which `file` keeps beyond the end of the process."""

    def __init__(self, file: Path, read: Callable[[], Reading] = read_clocks) -> None:
        self._file = file
        self._read = read
        self._before: Reading | None = None

    def look(self) -> tuple[Reading, timedelta]:
        """The clocks now, and how much of the time since the last look that was kept is uncounted.

        That is nothing where there was none. See `Reading.uncounted_since`.
        """
        now, before = self._read(), self._before or self._load()
        return now, timedelta(0) if before is None else now.uncounted_since(before)

    def keep(self, reading: Reading) -> None:
        """Count from here on.

        On a full disk the file keeps an older look: after a restart less counts, never more.
        """
        self._before = reading
        words = [reading.boot_id, reading.since_boot, reading.wall.isoformat()]
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(json.dumps(words))
            fresh.replace(self._file)

    def _load(self) -> Reading | None:
        try:
            boot_id, since_boot, wall = json.loads(self._file.read_text())
            return Reading(str(boot_id), float(since_boot), datetime.fromisoformat(wall))
        except (OSError, ValueError, TypeError):
            return None  # Not there yet, or not ours.
