"""Limits how many requests of a process run at once; one that waits lets another run.

A request holds a slot while it runs: `with holding(slots)`. Code that waits for a client, or for
another request, yields the slot while it waits: `with without_slot()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Requests with these methods change nothing (RFC 9110, section 9.2.1), and do not wait for writes:
they have slots of their own."""


class Slots:
    """A semaphore that serves waiters first in, first out.

    The standard library's lets running threads overtake waiting ones: with it, the p95 of
    1000 concurrent visitors was 13 to 19 times the median, with this one 3 to 6 times (three
    alternating runs of the k6 scenario of the visitors benchmark in `bench/`).
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Lock] = deque()
        self._changing = Lock()

    def acquire(self) -> None:
        """Take a slot, in the order of the calls."""
        with self._changing:
            if self._free:
                self._free -= 1
                return
            granted = Lock()
            granted.acquire()
            self._waiting.append(granted)
        granted.acquire()

    def release(self) -> None:
        """Hand the slot to the thread that has waited longest."""
        with self._changing:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


_held: ContextVar[Slots | None] = ContextVar("held_slots", default=None)


class holding:  # noqa: N801 - reads as the statement it is used in
    """`with holding(slots): ...` runs the block in one of `slots`, once one is free."""

    __slots__ = ("_slots", "_token")

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def __enter__(self) -> None:
        self._slots.acquire()
        self._token = _held.set(self._slots)

    def __exit__(self, *_error: object) -> None:
        _held.reset(self._token)
        self._slots.release()


@contextmanager
def without_slot() -> Iterator[None]:
    """Yield this thread's slot to another request, and take one again at the end of the block.

    Does nothing if this thread holds none: outside a request, or inside another `without_slot`.
    """
    slots = _held.get()
    if slots is None:
        yield
        return
    token = _held.set(None)
    slots.release()
    try:
        yield
    finally:
        slots.acquire()
        _held.reset(token)
