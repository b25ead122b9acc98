"""Receives small chunks in memory, and checks them before any of their bytes are written.

They hold no lock while they arrive, so two requests may send the same bytes: neither takes over
from the other, and the first complete one is stored.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from app.ingest.copy import BodyLimits, Pace
from app.ingest.source import BodySource, BufferedSource, Watch
from app.ingest.stages import Stage

LONGEST_BUFFERED_BYTES = 1024 * 1024
"""Longer chunks are written as they arrive, and a newer request takes over from an older one."""

MOST_BUFFERED_BYTES = 32 * 1024 * 1024
"""Limit for all requests of a process. Beyond it, chunks are treated as long ones: a thousand slow
clients must not use a gigabyte."""

LOOK_SECONDS = 2.0
"""How often to check whether the bytes are still wanted."""


class Budget:
    """Bytes that may be in memory at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._changing = Lock()

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self._used

    def take(self, count: int) -> bool:
        """Reserve `count` bytes; False if fewer are free."""
        with self._changing:
            if self._used + count > self._most:
                return False
            self._used += count
            return True

    def give_back(self, count: int) -> None:
        """Release bytes reserved by `take`."""
        with self._changing:
            self._used -= count


_budget = Budget(MOST_BUFFERED_BYTES)


@contextmanager
def buffered(source: BodySource, limits: BodyLimits, watch: Watch) -> Iterator[BodySource]:
    """A source that has been read into memory to its end and verified.

    Returns `source` itself, unread, if it is not verified at its end (a part of it would be worth
    keeping), is too long, or the budget is spent. `watch` is called from time to time and raises to
    end the wait. Raises what reading and finishing the source raises.
    """
    length = source.remaining or 0
    is_small = source.is_verified_at_end and 0 < length <= LONGEST_BUFFERED_BYTES
    if not is_small or not _budget.take(length):
        yield source
        return
    try:
        # A fresh map takes only as much memory as is filled.
        buffer = memoryview(mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE))
        pace, filled = Pace(limits), 0
        look_at = time.monotonic() + LOOK_SECONDS
        with Stage.RECEIVE:
            while filled < length and (count := source.readinto(buffer[filled:])) != 0:
                filled += count or 0
                pace.saw(count or 0)
                if time.monotonic() >= look_at:
                    watch()
                    look_at = time.monotonic() + LOOK_SECONDS
            source.finish()
        yield BufferedSource(buffer[:filled], source)
    finally:
        _budget.give_back(length)
