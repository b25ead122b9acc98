"""How many requests a caller may send in a minute."""

from __future__ import annotations

from ipaddress import IPv6Address

from app.domain.access import Caller, CallerKind
from app.domain.limit_errors import too_many
from app.request.minute_counts import MinuteCounts

NETWORK_BITS = 64
"""Whoever has an IPv6 address has as many of them as differ in the rest."""


class RequestRate:
    """Counts requests by who sends them; 0 a minute stands for any number."""

    def __init__(self, counts: MinuteCounts, *, per_minute: int) -> None:
        self._counts = counts
        self._per_minute = per_minute

    def check(self, caller: Caller | None, address: str) -> None:
        """Count a request; raises `TooManyRequests` beyond the limit.

        Who is not known is told apart by address, and so are the guests of a share link.
        """
        if not self._per_minute:
            return
        if self._counts.add(_name_of(caller) or _network(address)) > self._per_minute:
            raise too_many("requests", self._per_minute, wait_seconds=self._counts.seconds_left)


def _name_of(caller: Caller | None) -> str:
    is_guest = caller is not None and caller.kind is CallerKind.SHARE_LINK
    return "" if caller is None or is_guest else caller.sender


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        number = int(IPv6Address(address.partition("%")[0]))
    except ValueError:
        return address
    return f"{number >> NETWORK_BITS:x}::"
