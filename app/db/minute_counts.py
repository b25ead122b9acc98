"""Counts per name and minute, in memory shared by all worker processes.

A library would count per process or need its own server. The nodes of a fleet exchange their
counts: see `report` and `learn`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from heapq import nlargest
from pathlib import Path
from typing import NamedTuple

from app.ingest.shared_table import WITHOUT_SECRET, NameDigest, replace_table, shared_table

SLOTS = 1 << 14
"""Approximate number of names counted at the same time; takes 256 KiB of memory."""

NEAR = 4
"""Number of slots in which a name may be. If others hold all of them, the last one is evicted."""

REPORTED_NAMES = 200
"""Most names in a report: those with the largest counts, since they are closest to a limit."""

_SLOT = struct.Struct("=QII")  # The name's digest, the minute, the count.


class MinuteReport(NamedTuple):
    """Counts of one minute, numbered since 1970, by the digests of names."""

    minute: int
    counts: Mapping[int, int]


class MinuteCounts:
    """Counts events of the current minute by name; `clock` returns seconds.

    Two processes that count the same name in the same microsecond may count one instead of two: a
    lock would cost more than that is worth. The files can be lost. `elsewhere` is the file for
    counts of other nodes, if there are any.
    """

    def __init__(
        self,
        file: Path,
        clock: Callable[[], float],
        *,
        elsewhere: Path | None = None,
        digest: NameDigest = WITHOUT_SECRET,
    ) -> None:
        self._file = file
        self._clock = clock
        self._elsewhere_file = elsewhere
        self._digest = digest

    def add(self, name: str) -> int:
        """Count one event; returns this minute's count over all nodes."""
        minute = self._minute
        digest = self._digest.of(name)
        place, count = _find(self._table, digest, minute)
        _SLOT.pack_into(self._table, place, digest, minute, count + 1)
        elsewhere = 0 if self._elsewhere is None else _find(self._elsewhere, digest, minute)[1]
        return count + 1 + elsewhere

    @property
    def seconds_left(self) -> int:
        """Seconds until the next minute; at least one."""
        return max(1, 60 - int(self._clock() % 60))

    def report(self) -> MinuteReport:
        """Returns this node's counts, for the other nodes."""
        minute = self._minute
        counts = (
            (count, digest)
            for digest, then, count in _SLOT.iter_unpack(self._table)
            if then == minute
        )
        largest = nlargest(REPORTED_NAMES, counts)
        return MinuteReport(minute, {digest: count for count, digest in largest})

    def learn(self, reports: Iterable[MinuteReport]) -> None:
        """Replace the other nodes' counts with those in their reports; all processes see them."""
        if self._elsewhere_file is None:
            return
        table = bytearray(SLOTS * _SLOT.size)
        for minute, counts in reports:
            for digest, more in counts.items():
                place, count = _find(table, digest, minute)
                _SLOT.pack_into(table, place, digest, minute, count + more)
        replace_table(self._elsewhere_file, table)

    @property
    def _minute(self) -> int:
        return int(self._clock() // 60)

    @cached_property
    def _table(self) -> mmap.mmap:
        return shared_table(self._file, SLOTS * _SLOT.size)

    @cached_property
    def _elsewhere(self) -> mmap.mmap | None:
        file = self._elsewhere_file
        return None if file is None else shared_table(file, SLOTS * _SLOT.size)


def counts_in(
    folder: Path, digest: NameDigest | None, clock: Callable[[], datetime]
) -> MinuteCounts:
    """Returns the counts of a server with this data folder.

    `digest` is shared by the nodes of a fleet; None on a single machine.
    """
    file = folder / "minute-counts"

    def seconds() -> float:
        return clock().timestamp()

    if digest is None:
        return MinuteCounts(file, seconds)
    elsewhere = folder / "minute-counts-elsewhere"
    return MinuteCounts(file, seconds, elsewhere=elsewhere, digest=digest)


def _find(table: mmap.mmap | bytearray, digest: int, minute: int) -> tuple[int, int]:
    """Returns a name's position in a table, and its count."""
    free = None
    for near in range(NEAR):
        place = (digest + near) % SLOTS * _SLOT.size
        found, then, count = _SLOT.unpack_from(table, place)
        if found == digest and then == minute:
            return place, count
        if free is None and then != minute:
            free = place
    return (place if free is None else free), 0
