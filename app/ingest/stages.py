"""Measures where the time of a request goes: each second counts for the innermost stage.

The code that starts a request sets a `StageClock` with `start`; the layers below use
`with Stage.SYNC: ...` and know nothing about requests. Entering and leaving a stage costs 0.7 us; a
block of 1 MiB passes one on its way from the socket to a file, 1 of the roughly 300 us it takes
(`python -m bench stage_cost`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from enum import StrEnum
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

TELL_SECONDS = 0.25
"""How often, as its stages change, a running request reports the bytes that have arrived. One that
takes an hour would otherwise not be counted until its end."""


class Stage(StrEnum):
    """A stage of an upload request; `with` it, the time of the block counts for it alone."""

    RECEIVE = "receive"
    """Waiting for the client and reading from the network."""
    HASH = "hash"
    """Computing digests, as bytes pass or before they are published."""
    WRITE = "write"
    """Handing bytes to the file system."""
    SYNC = "sync"
    """Waiting until they are on the disk."""
    RECORD = "record"
    """The database, including its own syncs."""
    PUBLISH = "publish"
    """Making a finished file visible, without the syncs and records in between."""

    def __enter__(self) -> None:
        clock = _clock.get()
        if clock is not None:
            clock.outer.append(clock.switch(self))

    def __exit__(self, *_error: object) -> None:
        clock = _clock.get()
        if clock is not None and clock.outer:  # Else it was entered before the clock was set.
            clock.switch(clock.outer.pop())


class StageClock:
    """The seconds of one request by stage, and the bytes of its body that have arrived.

    `on_arrival`, if set, is called periodically with the number of new bytes; `tell` reports the
    last ones.
    """

    __slots__ = (
        *("_now_in", "_since", "_told_at", "_told", "_untold"),
        *("on_arrival", "outer", "seconds", "started"),
    )

    def __init__(self) -> None:
        self.on_arrival: Callable[[int], None] | None = None
        self.outer: list[Stage | None] = []
        """The stages around the current one."""
        self.seconds: dict[Stage, float] = {}
        self.started = self._since = self._told_at = time.perf_counter()
        self._now_in: Stage | None = None
        self._told = self._untold = 0

    @property
    def arrived(self) -> int:
        """Bytes of the body that have arrived."""
        return self._told + self._untold

    @property
    def elapsed(self) -> float:
        """Seconds since the request began."""
        return time.perf_counter() - self.started

    def switch(self, stage: Stage | None) -> Stage | None:
        """Count time for this stage, or none, from now on; returns the previous stage."""
        now, before = time.perf_counter(), self._now_in
        if before is not None:
            self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._now_in, self._since = stage, now
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self.tell()
        return before

    def saw(self, count: int) -> None:
        """Count bytes of the body that have arrived."""
        self._untold += count

    def tell(self) -> None:
        """Report the bytes that have not been reported yet."""
        untold, self._untold = self._untold, 0
        self._told += untold
        if untold and self.on_arrival is not None:
            self.on_arrival(untold)


_clock: ContextVar[StageClock | None] = ContextVar("stage_clock", default=None)


def start(clock: StageClock | None) -> Token[StageClock | None]:
    """Measure this thread with `clock`, until the returned token is given to `stop`."""
    return _clock.set(clock)


def stop(token: Token[StageClock | None]) -> None:
    """Undo `start`, in the same thread."""
    _clock.reset(token)


def timed_by(clock: StageClock, work: Callable[P, T]) -> Callable[P, T]:
    """`work` for another thread, timed by its own clock; see `add_seconds`."""

    def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        token = start(clock)
        try:
            return work(*args, **kwargs)
        finally:
            stop(token)

    return timed


def add_seconds(clock: StageClock) -> None:
    """Add the times `clock` measured in another thread to the current request, which waited for it.

    Two threads cannot share a clock: a request that stops waiting continues in parallel.
    """
    waiting = _clock.get()
    if waiting is not None:
        for name, seconds in clock.seconds.items():
            waiting.seconds[name] = waiting.seconds.get(name, 0.0) + seconds


def note_arrival(count: int) -> None:
    """Count bytes of the current request that came from the network."""
    clock = _clock.get()
    if clock is not None:
        clock.saw(count)
