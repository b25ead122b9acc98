"""How many connections a sender should use, so that all senders find room.

The worker, which counts connections, says so for each request: `with advising(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST_CONNECTIONS = 24
"""Our page and client open no more for an upload."""

_advice: ContextVar[Callable[[], int | None]] = ContextVar("connection_advice")


def advised_connections(open_now: int, most: int) -> int | None:
    """For each sender, if `open_now` of at most `most` connections are open; None for no advice.

    Advice begins when half of them are open, and falls to 1 as they fill. Senders obey, which
    leaves room: 200 that would open 24 each settle at 14, in a server of 4000.
    """
    if 2 * open_now <= most:
        return None
    return max(1, 2 * MOST_CONNECTIONS * (most - open_now) // most)


@contextmanager
def advising(advice: Callable[[], int | None]) -> Iterator[None]:
    """Requests of this thread get this advice."""
    token = _advice.set(advice)
    try:
        yield
    finally:
        _advice.reset(token)


def advice_now() -> int | None:
    """How many connections the sender of this request should use; None for no advice."""
    advice = _advice.get(None)
    return None if advice is None else advice()
