"""The line in, shared fairly: a sender gets as much of it as any other.

The number of its connections makes no difference. Every worker process sees the same small table in
shared memory. It says for each sender when its next bytes may be taken, and how much it has sent. A
sender whose own line is slow needs less than its share: the rest is divided among those who wait.
Without limits none of this is used.

The nodes of a fleet report their senders to each other, and share the line. A sender that uses
several nodes gets a part of its share on each.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import repeat, starmap
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from app.ingest.shared_table import WITHOUT_SECRET, NameDigest, replace_table, shared_table

# ---- other nodes ---------------------------------------------------------------------------------

# What the senders of a line do on the other nodes of a fleet, from those nodes' reports.


SLOTS = 1024
"""Roughly the most senders at once; two that fall into one slot share its rate."""

_SLOT_THERE = struct.Struct("=IId")
"""A sender's `Elsewhere`."""


class SenderReport(NamedTuple):
    """Recent activity of a sender on a node: its slot, bytes per second, whether it had to wait."""

    slot: int
    rate: float
    is_waiting: bool


class Elsewhere(NamedTuple):
    """How many other nodes a sender uses, on how many of them it waits, its rate on the rest."""

    nodes: int
    waiting: int
    rate: float


NOWHERE = Elsewhere(0, 0, 0.0)


class OtherNodes:
    """The last reports of the other nodes, in memory shared by this node's processes."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def of(self, slot: int) -> Elsewhere:
        """Activity of the sender in a slot."""
        return Elsewhere(*_SLOT_THERE.unpack_from(self._table, slot * _SLOT_THERE.size))

    def __iter__(self) -> Iterator[Elsewhere]:
        """Activity of all senders, in the order of their slots."""
        return starmap(Elsewhere, _SLOT_THERE.iter_unpack(self._table))

    def learn(self, reports: Iterable[Iterable[SenderReport]]) -> None:
        """Replace what was known with these reports, one from each node."""
        senders: dict[int, Elsewhere] = {}
        for report in reports:
            for slot, rate, is_waiting in report:
                nodes, waiting, satisfied = senders.get(slot % SLOTS, NOWHERE)
                satisfied += 0.0 if is_waiting else rate
                senders[slot % SLOTS] = Elsewhere(nodes + 1, waiting + is_waiting, satisfied)
        table = bytearray(SLOTS * _SLOT_THERE.size)
        for slot, sender in senders.items():
            _SLOT_THERE.pack_into(table, slot * _SLOT_THERE.size, *sender)
        replace_table(self._file, table)

    @cached_property
    def _table(self) -> mmap.mmap:
        return shared_table(self._file, SLOTS * _SLOT_THERE.size)


# ---- line ----------------------------------------------------------------------------------------


ACTIVE_SECONDS = 1.0
"""Who has neither sent nor waited for this long has no share."""

SHARE_SECONDS = 0.1
"""How often a process works the share out."""

QUANTUM_SECONDS = 0.05
"""How much of its share a sender may take at once, and how much unused time it may make up for."""

LEAST_BYTES, MOST_BYTES = 4 * 1024, 1024 * 1024
"""Limits of one read."""

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

    def is_active(self, now: float) -> bool:
        """Whether it sends or waits now."""
        return 0 <= now - self.seen < ACTIVE_SECONDS

    def is_waiting(self, now: float) -> bool:
        """Whether it would send more if it were allowed to."""
        return now - self.waited < ACTIVE_SECONDS


class Line:
    """`total` and `cap` are bytes a second, of all senders and of each; 0 for no limit.

    Processes do not lock the table: two that count in the same microsecond may forget a read.
    `others` are the other nodes, None on a single machine.
    """

    def __init__(
        self,
        file: Path,
        *,
        total: float,
        cap: float,
        others: OtherNodes | None = None,
        clock: Callable[[], float] = time.monotonic,
        digest: NameDigest = WITHOUT_SECRET,
    ) -> None:
        self._file = file
        self.others = others
        self._total, self._cap = total, cap
        self._clock = clock
        self._digest = digest
        self._lock = Lock()
        self._share = cap or total
        self._due_at = 0.0
        self._read_at = 0.0
        self._bytes: dict[int, int] = {}
        self._rates: dict[int, float] = {}
        self._reported_at = 0.0
        self._reported: list[int] = [0] * SLOTS

    def slot(self, sender: str) -> int:
        """The sender's place in the table."""
        return self._digest.of(sender) % SLOTS

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
            following += count / self._share_here(slot)
            total = entry.total + count
            self._write(slot, entry._replace(following=following, seen=now, total=total))

    def report(self) -> list[SenderReport]:
        """The senders of this node, for the others; rates are since the last report."""
        now = self._clock()
        elapsed, self._reported_at = max(now - self._reported_at, SHARE_SECONDS), now
        found = []
        for slot, values in enumerate(_SLOT.iter_unpack(self._table)):
            entry = _Entry(*values)
            count = entry.total - self._reported[slot]
            self._reported[slot] = entry.total
            if entry.is_active(now):
                found.append(SenderReport(slot, count / elapsed, entry.is_waiting(now)))
        return found

    def _work_share_out(self, now: float) -> None:
        """What everybody may send: an equal part of what those leave who need not wait."""
        elapsed, self._read_at = now - self._read_at, now
        self._due_at = now + SHARE_SECONDS
        if not self._total:
            return
        waiting, active, satisfied = 0, 0, 0.0
        for slot, (values, there) in enumerate(self._everybody()):
            entry = _Entry(*values)
            is_here = entry.is_active(now)
            if not is_here and not there.nodes:
                continue
            active += 1
            rate = there.rate
            if is_here:
                rate += self._rate(slot, entry.total, elapsed)
            if there.waiting or (is_here and entry.is_waiting(now)):
                waiting += 1
            else:
                satisfied += rate
        self._share = _level(self._total, satisfied, waiting=waiting, active=active)
        if self._cap:
            self._share = min(self._share, self._cap)

    def _everybody(self) -> Iterator[tuple[tuple[Any, ...], Elsewhere]]:
        """The entry of each slot, and its sender's activity on other nodes."""
        there = repeat(NOWHERE) if self.others is None else self.others
        return zip(_SLOT.iter_unpack(self._table), there, strict=False)

    def _share_here(self, slot: int) -> float:
        """What a sender may send to this node."""
        if self.others is None:
            return self._share
        there = self.others.of(slot)
        if not there.nodes:
            return self._share
        waiting, active = there.waiting + 1, there.nodes + 1
        return _level(self._share, there.rate, waiting=waiting, active=active)

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


def line_in(folder: Path, digest: NameDigest | None, *, total: float, cap: float) -> Line | None:
    """The line of a server with this data folder; None without limits.

    `digest` is the one that the nodes of a fleet share; None on a single machine.
    """
    if not total and not cap:
        return None
    file = folder / "line"
    if digest is None:
        return Line(file, total=total, cap=cap)
    others = OtherNodes(folder / "line-elsewhere")
    return Line(file, total=total, cap=cap, others=others, digest=digest)


def _level(budget: float, satisfied: float, *, waiting: int, active: int) -> float:
    """Rate for each waiting sender: an equal part of what the satisfied ones leave.

    At least an equal part of all, since a satisfied sender may want more in a moment.
    """
    return max(budget / max(active, 1), (budget - satisfied) / max(waiting, 1))
