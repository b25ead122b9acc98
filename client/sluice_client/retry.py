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
that a restart of the server cut off together do not come back together."""


def is_worth_retrying(error: SluiceError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, Refused):
        return error.retryable
    return isinstance(error, ConnectionFailed) and not isinstance(error, ServerUnreachable)


def delay_seconds(failures: int, random: Random) -> float:
    """How long to wait after so many failures in a row."""
    upper = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 10))
    return random.uniform(0, upper)


def waiting_note(error: SluiceError, seconds: float) -> str:
    """What to say while waiting."""
    when = f" in {seconds:.0f} s" if seconds >= 1 else ""
    return f"{error} Trying again{when}."


@dataclass
class Patience:
    """Shared by all connections of one job: gives up after a time without any progress."""

    give_up_seconds: float
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic
    random: Random = field(default_factory=Random)
    on_wait: Callable[[float, SluiceError], None] = lambda _seconds, _error: None

    def __post_init__(self) -> None:
        self._progress_at = self.clock()

    def progressed(self) -> None:
        """Something got through: the time without progress begins anew."""
        self._progress_at = self.clock()

    def wait_after(self, error: SluiceError, failures: int) -> None:
        """Wait before the next try; raises `error` if that is no use, or when time is up."""
        if not is_worth_retrying(error):
            raise error
        seconds = delay_seconds(failures, self.random)
        if isinstance(error, Refused) and error.retry_after is not None:
            seconds += error.retry_after
        if self.clock() + seconds - self._progress_at > self.give_up_seconds:
            raise self._final(error) from error
        self.on_wait(seconds, error)
        if self.stop.wait(seconds):
            raise Interrupted("Stopped while waiting for the server.")

    def _final(self, error: SluiceError) -> SluiceError:
        if isinstance(error, Refused) and not error.is_busy and error.status < 500:
            return error
        return ServerUnreachable(
            f"Gave up after {self.give_up_seconds:g} seconds without progress: {error}"
        )
