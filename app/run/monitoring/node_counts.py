"""A node's current activity as a few numbers, for the status page of a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from app.http.services import Services
from app.run.monitoring.instruments import WATCHERS, Instruments
from app.run.monitoring.reading import Snapshot, all_counts
from app.storage.local.folder import free_bytes

PROBLEM_SECONDS = 10.0
"""How often the set-up is checked; each check writes to the folders."""


NOTHING: Mapping[str, Any] = {
    "requests_now": 0,
    "downloads_now": 0,
    "received_bytes_per_second": 0,
    "sent_bytes_per_second": 0,
    "free_bytes": None,
    "problems": [],
}
"""The numbers of a node that is gone, or does not report them."""


class NodeCounts:
    """Reads the counts of all processes of a node; rates are those between two readings."""

    def __init__(
        self,
        services: Services,
        instruments: Instruments,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._services = services
        self._instruments = instruments
        self._clock = clock
        self._read_at = float("-inf")
        self._received = self._sent = 0.0
        self._checked_at = float("-inf")
        self._problems: list[str] = []

    def read(self) -> dict[str, Any]:
        """The numbers now, ready for JSON."""
        counts = Snapshot(all_counts(self._instruments).collect())
        return {
            "requests_now": running_requests(counts),
            "downloads_now": int(counts.total("sluice_downloads_in_progress")),
            **self._rates(counts),
            "free_bytes": free_bytes(self._services.settings.staging_dir),
            "problems": self._codes(),
        }

    def _rates(self, counts: Snapshot) -> dict[str, int]:
        now = self._clock()
        elapsed, self._read_at = max(now - self._read_at, 0.001), now
        before = self._received, self._sent
        self._received = counts.total("sluice_received_bytes_total")
        self._sent = counts.total("sluice_sent_bytes_total")
        return {
            "received_bytes_per_second": round((self._received - before[0]) / elapsed),
            "sent_bytes_per_second": round((self._sent - before[1]) / elapsed),
        }

    def _codes(self) -> list[str]:
        if self._clock() >= self._checked_at + PROBLEM_SECONDS:
            self._checked_at = self._clock()
            self._problems = [problem.code for problem in self._services.problems()]
        return self._problems


def running_requests(counts: Snapshot) -> int:
    """Requests not answered yet, except monitoring."""
    running = counts.by("protocol", "sluice_requests_in_progress")
    return int(sum(count for name, count in running.items() if name not in WATCHERS))
