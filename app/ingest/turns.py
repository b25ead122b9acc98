"""How many requests of a process run at once, and how one that waits lets another run.

Whoever begins a request holds a turn with `turn`; what happens below says `with aside(): ...` where
it waits for a client, or for something that only another request can bring about.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Semaphore

_turns: ContextVar[Semaphore | None] = ContextVar("turns", default=None)


@contextmanager
def turn(turns: Semaphore) -> Iterator[None]:
    """Run what is within once `turns` has one to give."""
    with turns:
        token = _turns.set(turns)
        try:
            yield
        finally:
            _turns.reset(token)


@contextmanager
def aside() -> Iterator[None]:
    """Give this thread's turn to another request, and wait for one at the end; not to be nested."""
    turns = _turns.get()
    if turns is None:
        yield
        return
    turns.release()
    try:
        yield
    finally:
        turns.acquire()
