"""The servers of a fleet, as they tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class NodeState(StrEnum):
    """Where a node stands; the value is what the status page shows."""

    READY = "ready"
    """It takes requests."""
    LEAVING = "leaving"
    """It was told to stop, and finishes the requests it has."""
    GONE = "gone"
    """Its lease has ended without a word: it was killed, is cut off, or hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a node says of itself, again and again.

    `address` is for operators. `counts` is what it does now; `traffic` is what the other nodes
    need so that limits hold over all of them. Both can be written as JSON.
    """

    name: str
    address: str
    version: str
    is_leaving: bool
    counts: Mapping[str, Any]
    traffic: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as all see it: its last report, and what became of it since."""

    report: NodeReport
    state: NodeState
    started_at: datetime
    uptime_seconds: float
    """From its start to now, or to the end of its lease."""
