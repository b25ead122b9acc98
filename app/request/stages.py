"""Where the time of a request goes: each second counts for one stage, the innermost.

Whoever begins a request puts a `StageClock` into place with `start`; what happens below says
`with stage(...)` and knows nothing of requests. A stage entered and left costs 0.9 us; a block of
1 MiB on its way from the socket into a file enters two, 2 of the some 300 us that it takes
(`python -m bench stage_cost`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from enum import StrEnum
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

TELL_SECONDS = 0.25
"""How often, as its stages change, a running request tells of the bytes that have arrived; one that
takes an hour would otherwise count for nothing until its end."""


class Stage(StrEnum):
    """What a request that brings bytes spends its time on."""

    RECEIVE = "receive"
    """Waiting for the client, and taking its bytes from the network."""
    HASH = "hash"
    """Summing bytes up, as they pass or before they are published."""
    WRITE = "write"
    """Handing bytes to the file system."""
    SYNC = "sync"
    """Waiting until they are on the disk."""
    RECORD = "record"
    """The database, its own syncs included."""
    PUBLISH = "publish"
    """Making a finished file visible, but for what of it is another stage's."""


class StageClock:
    """The seconds of one request by stage, and the bytes of its body that have arrived.

    `on_arrival`, where it is set, is told of further bytes now and then, and of the last ones by
    `tell`.
    """

    __slots__ = (
        *("_now_in", "_since", "_told_at", "_told", "_untold"),
        *("on_arrival", "seconds", "started"),
    )

    def __init__(self) -> None:
        self.on_arrival: Callable[[int], None] | None = None
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
        """Count the time from here on for a stage, or for none; the one it counted for before."""
        now, before = time.perf_counter(), self._now_in
        if before is not None:
            self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._now_in, self._since = stage, now
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self.tell()
        return before

    def saw(self, count: int) -> None:
        """So many more bytes of the body have arrived."""
        self._untold += count

    def tell(self) -> None:
        """Tell of the bytes that were not told of yet."""
        untold, self._untold = self._untold, 0
        self._told += untold
        if untold and self.on_arrival is not None:
            self.on_arrival(untold)


_clock: ContextVar[StageClock | None] = ContextVar("stage_clock", default=None)


class stage:  # noqa: N801 - reads as the statement it is used in
    """`with stage(Stage.SYNC): ...` counts the time within for that stage and for no other."""

    __slots__ = ("_before", "_clock", "_stage")

    def __init__(self, name: Stage) -> None:
        self._stage = name

    def __enter__(self) -> None:
        self._clock = _clock.get()
        if self._clock is not None:
            self._before = self._clock.switch(self._stage)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._clock is not None:
            self._clock.switch(self._before)


def start(clock: StageClock | None) -> Token[StageClock | None]:
    """Time what happens in this thread by `clock`, until `stop` is given what this returns."""
    return _clock.set(clock)


def stop(token: Token[StageClock | None]) -> None:
    """Go back to what was before `start`; in the same thread."""
    _clock.reset(token)


def timed_by(clock: StageClock, work: Callable[P, T]) -> Callable[P, T]:
    """`work` for another thread, timed by a clock of its own; see `add_seconds`."""

    def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        token = start(clock)
        try:
            return work(*args, **kwargs)
        finally:
            stop(token)

    return timed


def add_seconds(clock: StageClock) -> None:
    """Count what `clock` measured in another thread for the request at hand, which waited for it.

    Two threads cannot share one clock: a request that stops waiting goes on beside the work.
    """
    waiting = _clock.get()
    if waiting is not None:
        for name, seconds in clock.seconds.items():
            waiting.seconds[name] = waiting.seconds.get(name, 0.0) + seconds


def note_arrival(count: int) -> None:
    """So many bytes of the request at hand came in from the network."""
    clock = _clock.get()
    if clock is not None:
        clock.saw(count)
