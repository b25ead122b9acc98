"""When to try again, and when to stop trying."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from sluice_client.errors import (
    ConnectionFailed,
    Interrupted,
    Refused,
    ServerUnreachable,
    SluiceError,
)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
"""Delays are drawn from 0 to an upper end that doubles with each failure ("full jitter"): clients
that lost a restarting server together do not come back together."""

MINUTES_FROM_SECONDS = 90.0
"""Longer times are given in minutes."""


def is_worth_retrying(error: SluiceError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, Refused):
        return error.retryable
    return isinstance(error, ConnectionFailed) and not isinstance(error, ServerUnreachable)


def delay_seconds(failures: int, random: Random) -> float:
    """How long to wait after that many failures in a row."""
    upper = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 10))
    return random.uniform(0, upper)


def waiting_note(error: SluiceError, *, seconds: float, limit_seconds: float) -> str:
    """What to say while waiting: the next try is in `seconds`, the last after `limit_seconds`."""
    is_named = isinstance(error, Refused) and error.retry_after is not None
    when = f" in {seconds:.0f} s," if is_named else ""
    return f"{error} Trying again{when} for up to {duration_text(limit_seconds)}."


def duration_text(seconds: float) -> str:
    """A time limit for people."""
    if seconds >= MINUTES_FROM_SECONDS:
        return f"{seconds / 60:.0f} minutes"
    return f"{max(1, round(seconds))} seconds" if seconds >= 1.5 else "1 second"


@dataclass
class Patience:
    """Shared by all connections of one job: gives up after some time without progress.

    `on_wait` gets what to say to people before each wait.
    """

    give_up_seconds: float
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic
    random: Random = field(default_factory=Random)
    on_wait: Callable[[str], None] = lambda _note: None

    def __post_init__(self) -> None:
        self._progress_at = self.clock()

    def progressed(self) -> None:
        """Something got through: restart the time without progress."""
        self._progress_at = self.clock()

    def wait_after(self, error: SluiceError, failures: int) -> None:
        """Wait before the next try; raises `error` if a retry is pointless, or when time is up."""
        if not is_worth_retrying(error):
            raise error
        earliest = error.retry_after or 0.0 if isinstance(error, Refused) else 0.0
        left = self._progress_at + self.give_up_seconds - self.clock()
        if earliest >= left:
            raise self._final(error) from error
        seconds = min(earliest + delay_seconds(failures, self.random), left)
        self.on_wait(waiting_note(error, seconds=seconds, limit_seconds=self._limit(left)))
        if self.stop.wait(seconds):
            raise Interrupted("Stopped while waiting for the server.")

    def _limit(self, left: float) -> float:
        """The time that is left, to the minute: a listener repeats only what has changed."""
        return left if left >= MINUTES_FROM_SECONDS else min(self.give_up_seconds, 60.0)

    def _final(self, error: SluiceError) -> SluiceError:
        if isinstance(error, Refused) and not error.is_busy and error.status < 500:
            return error
        waited = self.clock() - self._progress_at
        return ServerUnreachable(f"{error} Gave up after {duration_text(waited)} without progress.")
