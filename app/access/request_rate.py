"""How many requests a caller may send in a minute."""

from __future__ import annotations

from app.core.access import Caller, counted_as
from app.core.errors import too_many
from app.db.minute_counts import MinuteCounts


class RequestRate:
    """Counts requests by who sends them; 0 a minute stands for any number."""

    def __init__(self, counts: MinuteCounts, *, per_minute: int) -> None:
        self._counts = counts
        self._per_minute = per_minute

    def check(self, caller: Caller | None, address: str) -> None:
        """Count a request; raises `TooManyRequests` beyond the limit."""
        if not self._per_minute:
            return
        if self._counts.add(counted_as(caller, address)) > self._per_minute:
            raise too_many("requests", self._per_minute, wait_seconds=self._counts.seconds_left)
