"""Counts per name and minute, in memory that all worker processes share.

A library would count in each process for itself, or need a server of its own.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from app.request.shared_table import shared_table

SLOTS = 1 << 14
"""Names that are counted at once, about; 256 KiB of memory."""

NEAR = 4
"""Slots in which a name may be. If others hold all of them, the last one has to make room."""

_SLOT = struct.Struct("=QII")  # The name's digest, the minute, the count.
_DIGEST_BYTES = 8


class MinuteCounts:
    """What happened in the current minute, by name; `clock` returns seconds.

    Two processes that count the same name in the same microsecond may count one instead of two: a
    lock would cost more than that is worth. The file holds nothing of value.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock

    def add(self, name: str) -> int:
        """Count one more; returns how many it is in this minute."""
        minute = int(self._clock() // 60)
        digest = int.from_bytes(blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest(), "big")
        place, count = self._find(digest, minute)
        _SLOT.pack_into(self._table, place, digest, minute, count + 1)
        return count + 1

    @property
    def seconds_left(self) -> int:
        """Until the next minute; at least one."""
        return max(1, 60 - int(self._clock() % 60))

    def _find(self, digest: int, minute: int) -> tuple[int, int]:
        """The place of a name in the table, and its count."""
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
