"""How many requests of a process run at once, and how one that waits lets another run.

Whoever begins a request holds a turn with `turn`; what happens below says `with aside(): ...` where
it waits for a client, or for something that only another request can bring about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock


class Turns:
    """A semaphore that serves in the order of asking.

    The standard library's lets whoever runs at the moment go before those who wait: of 1000
    visitors at once a twentieth waits 13 to 19 times as long as the median with that one, and 3 to
    6 times with this (three alternating runs of the k6 scenario of `bench/cases/visitors.py`).
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Lock] = deque()
        self._changing = Lock()

    def acquire(self) -> None:
        """Take a turn, once those who asked before have theirs."""
        with self._changing:
            if self._free:
                self._free -= 1
                return
            called = Lock()
            called.acquire()
            self._waiting.append(called)
        called.acquire()

    def release(self) -> None:
        """Hand the turn to whoever has waited longest."""
        with self._changing:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


_turns: ContextVar[Turns | None] = ContextVar("turns", default=None)


@contextmanager
def turn(turns: Turns) -> Iterator[None]:
    """Run what is within once `turns` has one to give."""
    turns.acquire()
    token = _turns.set(turns)
    try:
        yield
    finally:
        _turns.reset(token)
        turns.release()


@contextmanager
def aside() -> Iterator[None]:
    """Give this thread's turn to another request, and wait for one at the end.

    Nothing happens where this thread has none to give: not in a request, or within another `aside`.
    """
    turns = _turns.get()
    if turns is None:
        yield
        return
    token = _turns.set(None)
    turns.release()
    try:
        yield
    finally:
        turns.acquire()
        _turns.reset(token)
