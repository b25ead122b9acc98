"""Divides the upload bandwidth limit of this server fairly: each sender gets an equal share.

The number of its connections makes no difference. All worker processes use the same small table in
shared memory. It holds for each sender when its next bytes may be read, and how much it has sent. A
sender on a slow link needs less than its share: the rest is divided among the senders that wait.
Without limits none of this is used.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from app.ingest.shared_table import digest_of_name, shared_table
from app.ingest.slots import without_slot
from app.ingest.source import BodySource, SpliceSource, WrappedSource

# ---- limit ---------------------------------------------------------------------------------------

SLOTS = 1024
"""Roughly the maximum of concurrent senders; two that hash to one slot share its rate."""

ACTIVE_SECONDS = 1.0
"""A sender that has neither sent nor waited for this long has no share."""

SHARE_SECONDS = 0.1
"""How often a process recalculates the share."""

QUANTUM_SECONDS = 0.05
"""How much of its share a sender may use in one burst, and how much unused time it may catch up."""

LEAST_BYTES, MOST_BYTES = 4 * 1024, 1024 * 1024
"""Minimum and maximum size of one read."""

LONGEST_DEBT_SECONDS = 60.0
"""A time further in the future was recorded before the machine restarted."""

_SMOOTHING = 0.3

_SLOT = struct.Struct("=dddQ")
"""A sender's `_Entry`: three times and a count."""


class _Entry(NamedTuple):
    """When a sender's next bytes may be read, when it was last seen, and when it last had to wait.

    `total` is the number of bytes it has sent so far.
    """

    following: float
    seen: float
    waited: float
    total: int

    def is_active(self, now: float) -> bool:
        """Whether the sender is sending or waiting."""
        return 0 <= now - self.seen < ACTIVE_SECONDS

    def is_waiting(self, now: float) -> bool:
        """Whether the limit holds the sender back."""
        return now - self.waited < ACTIVE_SECONDS


class Line:
    """A bandwidth limit in bytes per second: `total` for all senders, `cap` for each; 0 for none.

    Processes do not lock the table: two that count in the same microsecond may lose a read.
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
        return digest_of_name(sender) % SLOTS

    def quantum(self) -> int:
        """Maximum number of bytes to read at once."""
        return int(min(max(self._share * QUANTUM_SECONDS, LEAST_BYTES), MOST_BYTES))

    def wait_seconds(self, slot: int) -> float:
        """Seconds until the sender's next bytes may be read; 0 if they may be read now."""
        now = self._clock()
        with self._lock:
            entry = self._read(slot)
            if not now < entry.following <= now + LONGEST_DEBT_SECONDS:
                return 0.0
            self._write(slot, entry._replace(seen=now, waited=now))
            return entry.following - now

    def took(self, slot: int, count: int) -> None:
        """Count bytes that have arrived from the sender."""
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
        """Calculate the share of each waiting sender: what the others leave, divided equally."""
        elapsed, self._read_at = now - self._read_at, now
        self._due_at = now + SHARE_SECONDS
        if not self._total:
            return
        waiting, active, satisfied = 0, 0, 0.0
        for slot, values in enumerate(_SLOT.iter_unpack(self._table)):
            entry = _Entry(*values)
            if not entry.is_active(now):
                continue
            active += 1
            rate = self._rate(slot, entry.total, elapsed)
            if entry.is_waiting(now):
                waiting += 1
            else:
                satisfied += rate
        # At least an equal part of the whole: a satisfied sender may soon want more.
        equal = self._total / max(active, 1)
        self._share = max(equal, (self._total - satisfied) / max(waiting, 1))
        if self._cap:
            self._share = min(self._share, self._cap)

    def _rate(self, slot: int, count: int, elapsed: float) -> float:
        """The sender's rate in bytes per second, averaged over the last few measurements."""
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


def line_in(folder: Path, *, total: float, cap: float) -> Line | None:
    """The bandwidth limit of the server with this data folder; None without limits."""
    return Line(folder / "line", total=total, cap=cap) if total or cap else None


# ---- paced bodies --------------------------------------------------------------------------------

TICK_SECONDS = 0.25
"""Longest sleep, after which the request checks whether it should end."""


def paced(source: BodySource, line: Line, sender: str) -> BodySource:
    """The same body, read no faster than its sender's share of the bandwidth limit."""
    slot = line.slot(sender)
    if isinstance(source, SpliceSource):
        return _PacedSplice(source, source, line, slot)
    return _Paced(source, line, slot)


class _Paced(WrappedSource):
    """A body whose reads wait for the sender's turn."""

    def __init__(self, source: BodySource, line: Line, slot: int) -> None:
        super().__init__(source)
        self._line = line
        self._slot = slot

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read some bytes; None after a short wait if it is not the sender's turn."""
        if not self.may_go_on():
            return None
        count = self._source.readinto(buffer[: self._line.quantum()])
        if count:
            self._line.took(self._slot, count)
        return count

    def may_go_on(self) -> bool:
        """Whether it is the sender's turn, perhaps after a short sleep."""
        wait = self._line.wait_seconds(self._slot)
        if wait:
            with without_slot():
                time.sleep(min(wait, TICK_SECONDS))
        return wait <= TICK_SECONDS


class _PacedSplice(_Paced, SpliceSource):
    """A paced body that can be spliced, without a copy in user space."""

    def __init__(self, source: BodySource, spliced: SpliceSource, line: Line, slot: int) -> None:
        super().__init__(source, line, slot)
        self._spliced = spliced

    @property
    def can_splice(self) -> bool:
        """Same as the wrapped source."""
        return self._spliced.can_splice

    def wait(self, count: int) -> bool:
        """Wait for the sender's turn, then for its bytes."""
        return self.may_go_on() and self._spliced.wait(min(count, self._line.quantum()))

    def splice_into(self, pipe: int, count: int) -> int:
        """Move as many bytes as the sender may send now."""
        moved = self._spliced.splice_into(pipe, min(count, self._line.quantum()))
        if moved:
            self._line.took(self._slot, moved)
        return moved
