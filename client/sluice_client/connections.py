"""How many connections to send on: learned from what each second brings."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sluice_client.line_state import OpenSockets


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections: while the queue is full, at first, and at most."""

    fewest: int
    first: int
    most: int


BOUNDS = Bounds(fewest=2, first=6, most=64)
"""Where one packet in a hundred is lost, each connection gets little."""

BOUNDS_OF_BBR = Bounds(fewest=2, first=2, most=4)
"""One fills a line that loses packets. Six of them lose a tenth of their packets in its queue."""

NEAR_SECONDS = 0.001
NEAR_BYTES_PER_SECOND = 4_000_000
"""A server is near if its round trips are shorter and each connection carries more: two connections
fill such a line, and more only wait for each other, for the file on the server and for its CPU. The
round trip alone may be that to a proxy on this machine."""

LOOK_SECONDS = 0.5

QUEUE_SECONDS = 0.020
"""Packets that wait longer fill the queue of a line that carries no more."""

LOSSY = 0.002
"""A share of lost segments that holds back each connection."""

CLEAN = 0.005
"""Below this share of lost segments, nothing but the full queue holds back the connections."""

CALM_SECONDS = 1.5
"""A queue that was full until then explains the losses."""

WORTHWHILE = 1.25
"""Twice as many connections must bring a quarter more, or are given back."""

TRIAL_SECONDS = 2.0
SETTLED_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class _Trial:
    began: float
    count_before: int
    rate_before: float


class Connections:
    """`wanted` is how many to send on; call `look` often, and `has_brought` after each chunk.

    `count` is how many a distant server gets.
    """

    def __init__(
        self,
        most: int,
        sockets: OpenSockets,
        *,
        bounds: Bounds = BOUNDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = bounds
        self._allowed = self.most = min(most, bounds.most)
        self._sockets = sockets
        self._clock = clock
        self.count = min(bounds.first, most)
        self.is_near = False
        self._looked_at = clock()
        self._settled_until = 0.0
        self._queued_at = 0.0
        self._trial: _Trial | None = None
        self._rates: list[tuple[float, float]] = []

    def look(self) -> None:
        """Change `count` if what happened lately says so."""
        now = self._clock()
        elapsed = now - self._looked_at
        if elapsed < LOOK_SECONDS:
            return
        self._looked_at = now
        state = self._sockets.look()
        if state is None:
            return
        rate = self._rate(now, state.acknowledged_bytes / elapsed)
        is_queueing = state.queue_seconds > QUEUE_SECONDS
        self._queued_at = now if is_queueing else self._queued_at
        if is_queueing and state.loss < CLEAN:
            self._trial = None
            self.count = max(min(self._bounds.fewest, self.most), self.count - 1)
        elif now - self._queued_at < CALM_SECONDS:
            self._trial = None  # The line is full: more connections bring nothing.
        elif self._trial is not None:
            self._judge(self._trial, now, rate)
        elif state.loss > LOSSY and self.count < self.most and now >= self._settled_until:
            self._trial = _Trial(now, self.count, rate)
            self.count = min(self.most, 2 * self.count)
        elif self.count < min(self._bounds.first, self.most) and now >= self._settled_until:
            self.count += 1

    def obey(self, most: int | None) -> None:
        """Use at most so many, as the server asks; None if it does not."""
        self.most = self._allowed if most is None else max(1, min(self._allowed, most))
        if self.count > self.most:
            self._trial, self.count = None, self.most

    def has_brought(self, bytes_per_second: float) -> None:
        """A chunk was sent on one connection at that rate."""
        self.is_near = (
            bytes_per_second > NEAR_BYTES_PER_SECOND
            and self._sockets.least_rtt_seconds() < NEAR_SECONDS
        )

    @property
    def wanted(self) -> int:
        """How many to send on now."""
        return min(self._bounds.fewest, self.count) if self.is_near else self.count

    @property
    def wanted_at_end(self) -> int:
        """How many to send the last bytes on: those that end together."""
        if self.is_near:
            return self.wanted
        return max(self.count, min(self._bounds.first, self.most))

    def give_back(self) -> None:
        """A send failed, or the server is busy: one connection less."""
        self._trial = None
        self._settled_until = self._clock() + SETTLED_SECONDS
        self.count = max(1, self.count - 1)

    def _judge(self, trial: _Trial, now: float, rate: float) -> None:
        if now - trial.began < TRIAL_SECONDS:
            return
        self._trial = None
        if rate < trial.rate_before * WORTHWHILE:
            self.count = min(trial.count_before, self.most)
            self._settled_until = now + SETTLED_SECONDS

    def _rate(self, now: float, rate: float) -> float:
        """The mean of the last second."""
        self._rates = [(at, each) for at, each in self._rates if now - at < 1.0] + [(now, rate)]
        return sum(each for _, each in self._rates) / len(self._rates)
