"""How many requests a caller may send in a minute."""

from __future__ import annotations

from app.domain.access import Caller, CallerKind
from app.domain.addresses import network_of
from app.domain.limit_errors import too_many
from app.request.minute_counts import MinuteCounts

THROUGH_LINKS = frozenset({CallerKind.UPLOAD_LINK, CallerKind.SHARE_LINK})
"""Callers who share one link, and can be as many visitors as they like."""


class RequestRate:
    """Counts requests by who sends them; 0 a minute stands for any number."""

    def __init__(self, counts: MinuteCounts, *, per_minute: int) -> None:
        self._counts = counts
        self._per_minute = per_minute

    def check(self, caller: Caller | None, address: str) -> None:
        """Count a request; raises `TooManyRequests` beyond the limit.

        Who is not known is told apart by address, and so are those who use the same link.
        """
        if not self._per_minute:
            return
        if self._counts.add(_name(caller, address)) > self._per_minute:
            raise too_many("requests", self._per_minute, wait_seconds=self._counts.seconds_left)


def _name(caller: Caller | None, address: str) -> str:
    if caller is not None and caller.kind in THROUGH_LINKS:
        return f"{caller.kind}:{caller.id} {network_of(address)}"
    return (caller.sender if caller is not None else "") or network_of(address)
