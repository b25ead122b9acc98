"""Advises clients how many connections to use, so that there are enough for all of them.

The worker, which counts connections, sets the advice for each request: `with advising(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST_CONNECTIONS = 24
"""Maximum connections that our page and client open for an upload."""

_advice: ContextVar[Callable[[], int | None]] = ContextVar("connection_advice")


def advised_connections(open_now: int, most: int) -> int | None:
    """Connections per client if `open_now` of at most `most` are open; None for no advice.

    Advice begins when half of them are open, and falls to 1 as they fill. Clients follow it, which
    frees connections: 200 that would open 24 each settle at 14 on a server with 4000.
    """
    if 2 * open_now <= most:
        return None
    return max(1, 2 * MOST_CONNECTIONS * (most - open_now) // most)


@contextmanager
def advising(advice: Callable[[], int | None]) -> Iterator[None]:
    """Use this advice for requests handled by this thread."""
    token = _advice.set(advice)
    try:
        yield
    finally:
        _advice.reset(token)


def advice_now() -> int | None:
    """How many connections the client of this request should use; None for no advice."""
    advice = _advice.get(None)
    return None if advice is None else advice()
