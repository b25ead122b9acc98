"""Detects restarts of the machine and jumps of its clock, also while the server was off.

The kernel's boot id reveals a restart. With a durability below `chunk` the records may claim bytes
that a power cut lost because the kernel had not written them yet.

A machine without a clock battery starts with a wrong time and corrects it later, an operator sets
the clock by hand, or a machine or server is off for weeks: clients could not resume during that
time, so it must not count as idle. The wall clock is therefore compared with the time since boot
(CLOCK_BOOTTIME), which cannot be set and keeps running while the machine sleeps. Finished videos
wait for no client: they get older while a server is off, but not when its clock is set.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from app.storage.base import Durability

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

COUNTED_GAP = timedelta(hours=1)
"""Longest time that counts as idle between two readings, which are a minute apart while the server
runs. Not zero, so that uploads also expire on a server that restarts all the time."""

TOLERANCE = timedelta(seconds=1)
"""Smaller differences are ignored, since the two clocks are read one after the other."""


def after_restart_of_machine(
    marker: Path,
    durability: Durability,
    forget_unsynced: Callable[[], None],
    *,
    boot_id_file: Path = BOOT_ID,
) -> None:
    """Call `forget_unsynced` if the machine restarted after bytes were stored without a sync.

    A server calls this before it accepts requests. If several processes call it in turn, only the
    first has anything to do. `marker` is a file that stores the boot id and the durability.
    """
    marker.parent.mkdir(parents=True, exist_ok=True)
    boot_id = boot_id_file.read_text().strip()
    with marker.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        old_boot_id, _, old_durability = file.read().strip().partition(" ")
        has_unsynced = old_durability not in {"", Durability.CHUNK}
        if old_boot_id == boot_id and (has_unsynced or old_durability == durability):
            return  # A stricter setting does not cover bytes stored before the change.
        if has_unsynced:
            forget_unsynced()
        file.truncate(0)
        file.write(f"{boot_id} {durability}")
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Reading:
    """Both clocks at one moment; `since_boot` is in seconds since the boot with that id."""

    boot_id: str
    since_boot: float
    wall: datetime

    def uncounted_since(self, before: Reading, counted_gap: timedelta) -> timedelta:
        """Time on the wall clock that does not count as idle; negative if it was set back."""
        passed = max(self._passed_since(before), timedelta(0))
        return _beyond_tolerance(self.wall - before.wall - min(passed, counted_gap))

    def jump_since(self, before: Reading) -> timedelta:
        """How far the wall clock was set; negative if it was set back.

        Zero across a restart of the machine: only the wall clock shows how long it was off.
        """
        return _beyond_tolerance(self.wall - before.wall - self._passed_since(before))

    def _passed_since(self, before: Reading) -> timedelta:
        if self.boot_id == before.boot_id:
            return timedelta(seconds=self.since_boot - before.since_boot)
        return self.wall - before.wall


def _beyond_tolerance(difference: timedelta) -> timedelta:
    return difference if abs(difference) > TOLERANCE else timedelta(0)


def read_clocks(wall: Callable[[], datetime]) -> Reading:
    """Read both clocks; `wall` is the clock used for the times of uploads and videos."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Reading(BOOT_ID.read_text().strip(), since_boot, wall())


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """The current reading, and the changes since the previous one; zero if there was none.

    See `Reading.uncounted_since` and `Reading.jump_since`.
    """

    reading: Reading
    uncounted: timedelta = timedelta(0)
    jump: timedelta = timedelta(0)


class Note(Protocol):
    """A short text that outlives the process."""

    def read(self) -> str | None:
        """The text; None if there is none, or if it cannot be read."""

    def write(self, text: str) -> None:
        """Replace the text."""


class NoteFile:
    """A note of one process, stored in a file.

    On a full disk the file keeps an older note, which matters only after a restart.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written: str | None = None

    def read(self) -> str | None:
        """As `Note`."""
        with suppress(OSError, ValueError):
            return self._written or self._file.read_text()
        return None

    def write(self, text: str) -> None:
        """As `Note`."""
        self._written = text
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text(text)
            fresh.replace(self._file)


class IdleClock:
    """Compares each reading with the previous one, which `note` keeps across restarts.

    Nodes that share the records share the note, since clients can resume while any node is
    running. They must also share the wall clock: a difference would look like a jump.
    """

    def __init__(
        self, note: Note, read: Callable[[], Reading], *, counted_gap: timedelta = COUNTED_GAP
    ) -> None:
        self._note = note
        self._read = read
        self._counted_gap = counted_gap

    def look(self) -> ClockCheck:
        """Compare the clocks with the last kept reading."""
        now = self._read()
        try:
            boot_id, since_boot, wall = json.loads(self._note.read() or "")
            before = Reading(str(boot_id), float(since_boot), datetime.fromisoformat(wall))
        except (ValueError, TypeError):  # Missing, or not written by this program.
            return ClockCheck(now)
        uncounted = now.uncounted_since(before, self._counted_gap)
        return ClockCheck(now, uncounted, now.jump_since(before))

    def keep(self, reading: Reading) -> None:
        """Store this reading for the next comparison."""
        words = [reading.boot_id, reading.since_boot, reading.wall.isoformat()]
        self._note.write(json.dumps(words))
