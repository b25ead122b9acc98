"""What the machine did while no process of the server looked: restarts, and jumps of its clock.

A restart shows in the kernel's boot id. With a durability below `chunk` the records may outlive
bytes they speak of: a power cut loses what the kernel had not written yet.

A machine without a battery starts with a wrong clock and sets it right later, an operator sets it
by hand, a machine or a server is off for weeks: time in which no client could have come back. The
clock is therefore compared with the time since the machine started (CLOCK_BOOTTIME), which nobody
sets, and which goes on while the machine sleeps.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.storage.base import Durability

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

COUNTED_GAP = timedelta(hours=1)
"""The most that counts between two looks, which are a minute apart while the server runs. More than
nothing, so that uploads also expire on a server that restarts all the time."""

TOLERANCE = timedelta(seconds=1)
"""Smaller differences are how the two clocks are read, one after the other."""


def after_restart_of_machine(
    marker: Path,
    durability: Durability,
    forget_unsynced: Callable[[], None],
    *,
    boot_id_file: Path = BOOT_ID,
) -> None:
    """Call `forget_unsynced` if the machine restarted since bytes were taken without syncing them.

    Every process calls this before it serves; they take turns, and only the first one finds
    anything to do. `marker` is a file of ours that keeps the boot id and the durability.
    """
    marker.parent.mkdir(parents=True, exist_ok=True)
    boot_id = boot_id_file.read_text().strip()
    with marker.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        old_boot_id, _, old_durability = file.read().strip().partition(" ")
        has_unsynced = old_durability not in {"", Durability.CHUNK}
        if old_boot_id == boot_id and (has_unsynced or old_durability == durability):
            return  # A stricter setting does not reach the bytes taken before it.
        if has_unsynced:
            forget_unsynced()
        file.truncate(0)
        file.write(f"{boot_id} {durability}")
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Reading:
    """Both clocks at one moment; `since_boot` in seconds, of the boot that the id names."""

    boot_id: str
    since_boot: float
    wall: datetime

    def uncounted_since(self, before: Reading, counted_gap: timedelta) -> timedelta:
        """How much further the wall clock went than counts; negative where it was set back."""
        shown = passed = self.wall - before.wall
        if self.boot_id == before.boot_id:
            passed = timedelta(seconds=self.since_boot - before.since_boot)
        uncounted = shown - min(max(passed, timedelta(0)), counted_gap)
        return uncounted if abs(uncounted) > TOLERANCE else timedelta(0)


def read_clocks() -> Reading:
    """What they show now."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Reading(BOOT_ID.read_text().strip(), since_boot, datetime.now(UTC))


class IdleClock:
    """Compares each look with the one before, which `file` keeps beyond the end of the process."""

    def __init__(
        self,
        file: Path,
        read: Callable[[], Reading] = read_clocks,
        *,
        counted_gap: timedelta = COUNTED_GAP,
    ) -> None:
        self._file = file
        self._read = read
        self._counted_gap = counted_gap
        self._before: Reading | None = None

    def look(self) -> tuple[Reading, timedelta]:
        """The clocks now, and how much of the time since the last look that was kept is uncounted.

        That is nothing where there was none. See `Reading.uncounted_since`.
        """
        now, before = self._read(), self._before or self._load()
        if before is None:
            return now, timedelta(0)
        return now, now.uncounted_since(before, self._counted_gap)

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
