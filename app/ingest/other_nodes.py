"""What the senders of a line do on the other nodes of a fleet, from those nodes' reports."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

from app.ingest.shared_table import replace_table, shared_table

SLOTS = 1024
"""Roughly the most senders at once; two that fall into one slot share its rate."""

_SLOT = struct.Struct("=IId")
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
        return Elsewhere(*_SLOT.unpack_from(self._table, slot * _SLOT.size))

    def __iter__(self) -> Iterator[Elsewhere]:
        """Activity of all senders, in the order of their slots."""
        return starmap(Elsewhere, _SLOT.iter_unpack(self._table))

    def learn(self, reports: Iterable[Iterable[SenderReport]]) -> None:
        """Replace what was known with these reports, one from each node."""
        senders: dict[int, Elsewhere] = {}
        for report in reports:
            for slot, rate, is_waiting in report:
                nodes, waiting, satisfied = senders.get(slot % SLOTS, NOWHERE)
                satisfied += 0.0 if is_waiting else rate
                senders[slot % SLOTS] = Elsewhere(nodes + 1, waiting + is_waiting, satisfied)
        table = bytearray(SLOTS * _SLOT.size)
        for slot, sender in senders.items():
            _SLOT.pack_into(table, slot * _SLOT.size, *sender)
        replace_table(self._file, table)

    @cached_property
    def _table(self) -> mmap.mmap:
        return shared_table(self._file, SLOTS * _SLOT.size)
