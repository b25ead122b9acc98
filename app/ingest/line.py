"""The line in, shared fairly: a sender gets as much of it as any other.

The number of its connections makes no difference. Every worker process sees the same small table in
shared memory. It says for each sender when its next bytes may be taken, and how much it has sent. A
sender whose own line is slow needs less than its share: the rest is divided among those who wait.
Without limits none of this is used.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from app.ingest.source import BodySource, Watch, no_watch
from app.ingest.splice import SpliceSource
from app.request.shared_table import shared_table
from app.request.slots import without_slot

SLOTS = 1024
"""Senders at once, about; two with one slot share its rate."""

ACTIVE_SECONDS = 1.0
"""Who has neither sent nor waited for this long has no share."""

SHARE_SECONDS = 0.1
"""How often a process works the share out."""

QUANTUM_SECONDS = 0.05
"""How much of its share a sender may take at once, and how much unused time it may make up for."""

LEAST_BYTES, MOST_BYTES = 4 * 1024, 1024 * 1024
"""Limits of one read."""

TICK_SECONDS = 0.25
"""Longest sleep; then the request looks whether it should end."""

LONGEST_DEBT_SECONDS = 60.0
"""A later moment was noted before the machine restarted."""

_SMOOTHING = 0.3

_SLOT = struct.Struct("=dddQ")
"""A sender's `_Entry`: three moments, and a count."""


class _Entry(NamedTuple):
    """When a sender's next bytes may be taken, when it was last seen, and when it last had to wait.

    `total` are all of its bytes so far.
    """

    following: float
    seen: float
    waited: float
    total: int


class Line:
    """`total` and `cap` are bytes a second, of all senders and of each; 0 for no limit.

    Processes do not lock the table: two that count in the same microsecond may forget a read.
    """

    def __init__(
        self,
        file: Path,
        *,
        total: float,
        cap: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._total, self._cap = total, cap
        self._clock = clock
        self._lock = Lock()
        self._share = cap or total
        self._due_at = 0.0
        self._read_at = 0.0
        self._bytes: dict[int, int] = {}
        self._rates: dict[int, float] = {}

    def slot(self, sender: str) -> int:
        """The sender's place in the table."""
        digest = blake2b(sender.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % SLOTS

    def quantum(self) -> int:
        """How many bytes to take at once, at most."""
        return int(min(max(self._share * QUANTUM_SECONDS, LEAST_BYTES), MOST_BYTES))

    def wait_seconds(self, slot: int) -> float:
        """How long until the sender may send on; 0 if it may now."""
        now = self._clock()
        with self._lock:
            entry = self._read(slot)
            if not now < entry.following <= now + LONGEST_DEBT_SECONDS:
                return 0.0
            self._write(slot, entry._replace(seen=now, waited=now))
            return entry.following - now

    def took(self, slot: int, count: int) -> None:
        """Note that `count` bytes of the sender have arrived."""
        now = self._clock()
        with self._lock:
            if now >= self._due_at:
                self._work_share_out(now)
            entry = self._read(slot)
            following = max(entry.following, now - QUANTUM_SECONDS)
            if following > now + LONGEST_DEBT_SECONDS:
                following = now
            following += count / self._share
            total = entry.total + count
            self._write(slot, entry._replace(following=following, seen=now, total=total))

    def _work_share_out(self, now: float) -> None:
        """What everybody may send: an equal part of what those leave who need not wait."""
        elapsed, self._read_at = now - self._read_at, now
        self._due_at = now + SHARE_SECONDS
        if not self._total:
            return
        waiting, active, unlimited = 0, 0, 0.0
        for slot, values in enumerate(_SLOT.iter_unpack(self._table)):
            entry = _Entry(*values)
            if not 0 <= now - entry.seen < ACTIVE_SECONDS:
                continue
            active += 1
            rate = self._rate(slot, entry.total, elapsed)
            if now - entry.waited < ACTIVE_SECONDS:
                waiting += 1
            else:
                unlimited += rate
        equal = self._total / max(active, 1)
        self._share = max(equal, (self._total - unlimited) / max(waiting, 1))
        if self._cap:
            self._share = min(self._share, self._cap)

    def _rate(self, slot: int, count: int, elapsed: float) -> float:
        """Bytes a second of the sender, over the last few looks."""
        fresh = (count - self._bytes.get(slot, count)) / max(elapsed, SHARE_SECONDS)
        self._bytes[slot] = count
        known = self._rates.get(slot, fresh)
        self._rates[slot] = known + _SMOOTHING * (fresh - known)
        return self._rates[slot]

    def _read(self, slot: int) -> _Entry:
        return _Entry(*_SLOT.unpack_from(self._table, slot * _SLOT.size))

    def _write(self, slot: int, entry: _Entry) -> None:
        _SLOT.pack_into(self._table, slot * _SLOT.size, *entry)

    @cached_property
    def _table(self) -> mmap.mmap:
        return shared_table(self._file, SLOTS * _SLOT.size)


def paced(source: BodySource, line: Line, sender: str) -> BodySource:
    """The same body, arriving no faster than its sender's share of the line."""
    slot = line.slot(sender)
    if isinstance(source, SpliceSource):
        return _PacedSplice(source, source, line, slot)
    return _Paced(source, line, slot)


class _Paced:
    """A body whose reads take turns with those of others."""

    def __init__(self, source: BodySource, line: Line, slot: int) -> None:
        self._source = source
        self._line = line
        self._slot = slot

    @property
    def remaining(self) -> int | None:
        """Bytes still to come, or None."""
        return self._source.remaining

    @property
    def is_verified_at_end(self) -> bool:
        """That of the source within."""
        return self._source.is_verified_at_end

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read on, or wait for a tick."""
        if not self.may_go_on():
            return None
        count = self._source.readinto(buffer[: self._line.quantum()])
        if count:
            self._line.took(self._slot, count)
        return count

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Finish the source within."""
        self._source.finish(watch)

    def may_go_on(self) -> bool:
        """Whether it is the sender's turn, perhaps after a short sleep."""
        wait = self._line.wait_seconds(self._slot)
        if wait:
            with without_slot():
                time.sleep(min(wait, TICK_SECONDS))
        return wait <= TICK_SECONDS


class _PacedSplice(_Paced, SpliceSource):
    """One whose bytes need not enter the program."""

    def __init__(self, source: BodySource, spliced: SpliceSource, line: Line, slot: int) -> None:
        super().__init__(source, line, slot)
        self._spliced = spliced

    @property
    def can_splice(self) -> bool:
        """That of the source within."""
        return self._spliced.can_splice

    def wait(self, count: int) -> bool:
        """Wait for the sender's turn, then for its bytes."""
        return self.may_go_on() and self._spliced.wait(min(count, self._line.quantum()))

    def splice_into(self, pipe: int, count: int) -> int:
        """Move what the sender may send now."""
        moved = self._spliced.splice_into(pipe, min(count, self._line.quantum()))
        if moved:
            self._line.took(self._slot, moved)
        return moved
