"""Counts per name and minute, in memory shared by all worker processes.

A library would count per process or need its own server. Each node of a fleet counts for itself.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path

from app.ingest.shared_table import digest_of_name, shared_table

SLOTS = 1 << 14
"""Approximate number of names counted at the same time; takes 256 KiB of memory."""

NEAR = 4
"""Number of slots in which a name may be. If others hold all of them, the last one is evicted."""

_SLOT = struct.Struct("=QII")  # The name's digest, the minute, the count.


class MinuteCounts:
    """Counts events of the current minute by name; `clock` returns seconds.

    Two processes that count the same name in the same microsecond may count one instead of two: a
    lock would cost more than that is worth. The file can be lost.
    """

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def add(self, name: str) -> int:
        """Count one event; returns this minute's count."""
        minute = int(self._clock() // 60)
        digest = digest_of_name(name)
        place, count = self._find(digest, minute)
        _SLOT.pack_into(self._table, place, digest, minute, count + 1)
        return count + 1

    @property
    def seconds_left(self) -> int:
        """Seconds until the next minute; at least one."""
        return max(1, 60 - int(self._clock() % 60))

    def _find(self, digest: int, minute: int) -> tuple[int, int]:
        """Returns a name's position in the table, and its count."""
        free = None
        for near in range(NEAR):
            place = (digest + near) % SLOTS * _SLOT.size
            found, then, count = _SLOT.unpack_from(self._table, place)
            if found == digest and then == minute:
                return place, count
            if free is None and then != minute:
                free = place
        return (place if free is None else free), 0

    @cached_property
    def _table(self) -> mmap.mmap:
        return shared_table(self._file, SLOTS * _SLOT.size)


def counts_in(folder: Path, clock: Callable[[], datetime]) -> MinuteCounts:
    """Returns the counts of the server with this data folder."""
    return MinuteCounts(folder / "minute-counts", lambda: clock().timestamp())
