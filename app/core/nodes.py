"""Reports exchanged by the nodes of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class NodeState(StrEnum):
    """State of a node; the value is what the status page shows."""

    READY = "ready"
    """Serving requests."""
    LEAVING = "leaving"
    """Stopping: it is finishing its requests."""
    GONE = "gone"
    """Its lease has expired: it was killed, is disconnected, or hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The report that a node sends every second.

    `address` is for operators. `counts` is its current activity, and can be written as JSON.
    """

    name: str
    address: str
    version: str
    is_leaving: bool
    counts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the others see it: its last report, and its state now."""

    report: NodeReport
    state: NodeState
    started_at: datetime
    uptime_seconds: float
    """Seconds from its start to now, or to the end of its lease."""
