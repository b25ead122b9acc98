"""Limits the total bytes in all spools of a node, across processes.

A byte of room is a locked byte of a shared file: locks end with their process, so the total stays
right when processes are killed. The file itself stays empty.
"""

from __future__ import annotations

import os
import random
import time

from app.core.errors import ServerBusy
from app.core.ranges import ByteRange, RangeSet
from app.ingest.slots import without_slot
from app.storage.local.folder import Folder
from app.storage.local.range_lock import locked_by_others, try_lock, unlock

GUESSES = 3
"""Random positions to try before a search: with half of the room taken, most are free."""

_POLL_SECONDS = 0.02
_ACCOUNT = "spool-room"


class NoSpoolRoom(ServerBusy):
    """Other spools of this node use the room."""


class Room:
    """Room for some bytes on this node until it is closed; all rooms share `capacity` bytes."""

    def __init__(self, folder: Folder, capacity: int) -> None:
        self._capacity = capacity
        self._taken = RangeSet()
        self._descriptor = folder.open(_ACCOUNT, os.O_RDWR | os.O_CREAT)

    @property
    def length(self) -> int:
        """Number of bytes that this room holds."""
        return self._taken.total

    @property
    def is_wanted(self) -> bool:
        """Whether another request waits for room."""
        return locked_by_others(self._descriptor, self._waiting) is not None

    def grow(self, count: int, seconds: float = 0.0) -> bool:
        """Add room for `count` more bytes; False if there is none within `seconds`."""
        if self._take(count):
            return True
        if not seconds:
            return False
        with without_slot():
            return self._wait_for(count, time.monotonic() + seconds)

    def require(self, count: int, seconds: float) -> None:
        """Add room for `count` more bytes; raises `NoSpoolRoom` if none is free in time."""
        if not self.grow(count, seconds):
            raise NoSpoolRoom("The server waits for its store to take what has arrived.")

    def shrink(self, length: int) -> None:
        """Release all but `length` bytes."""
        for span in self._taken:
            kept = ByteRange(span.start, min(span.end, span.start + length))
            length -= kept.length
            if kept != span:
                self._give_back(ByteRange(kept.end, span.end))

    def close(self) -> None:
        """Release all room."""
        os.close(self._descriptor)

    @property
    def _waiting(self) -> ByteRange:
        """The byte that a waiting request locks."""
        return ByteRange(self._capacity, self._capacity + 1)

    def _wait_for(self, count: int, deadline: float) -> bool:
        try:
            while not self._take(count):
                if time.monotonic() > deadline:
                    return False
                try_lock(self._descriptor, self._waiting)
                time.sleep(_POLL_SECONDS)
            return True
        finally:
            unlock(self._descriptor, self._waiting)

    def _take(self, count: int) -> bool:
        """Lock `count` free bytes, contiguous if that is easy."""
        starts = [self._taken.end]
        starts += (random.randrange(self._capacity) for _ in range(GUESSES))  # noqa: S311 - no secret
        if any(self._lock(ByteRange(start, start + count)) for start in starts):
            return True
        return self._gather(count)

    def _gather(self, count: int) -> bool:
        """Lock `count` free bytes anywhere, or none; searches from a random position."""
        begin = random.randrange(self._capacity)  # noqa: S311 - no secret
        found, missing = list[ByteRange](), count
        for position, end in ((begin, self._capacity), (0, begin)):
            at = position
            while missing and at < end:
                free = self._first_free(at, missing)
                if self._lock(free):
                    found.append(free)
                    missing -= free.length
                at = max(free.end, at + 1)
        if missing:
            for span in found:
                self._give_back(span)
        return not missing

    def _first_free(self, position: int, count: int) -> ByteRange:
        """Returns the first free range from `position` on, up to `count` bytes; may be empty."""
        while position < self._capacity:
            rest = ByteRange(position, min(position + count, self._capacity))
            own_or_free = next(self._taken.gaps(rest), None)
            if own_or_free is None:
                position = rest.end
                continue
            other = locked_by_others(self._descriptor, own_or_free)
            if other is None:
                return own_or_free
            if other.start > own_or_free.start:
                count = other.start - own_or_free.start
                position = own_or_free.start
            else:
                position = other.end
        return ByteRange(self._capacity, self._capacity)

    def _lock(self, span: ByteRange) -> bool:
        """Lock bytes that are free; returns whether all of them were."""
        is_ours = self._taken.total + span.length != self._taken.add(span).total
        if not span.length or span.end > self._capacity or is_ours:
            return False
        if not try_lock(self._descriptor, span):
            return False
        self._taken = self._taken.add(span)
        return True

    def _give_back(self, span: ByteRange) -> None:
        unlock(self._descriptor, span)
        self._taken = RangeSet.of(
            left for own in self._taken for left in RangeSet.of([span]).gaps(own)
        )
