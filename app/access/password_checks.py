"""Checks passwords that strangers may guess, and counts their failures and other attempts.

A failure counts once it has happened. A right password, and a server that is too busy to check it,
count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.access.passwords import FIRST, Passwords
from app.access.records.attempts import AttemptRecords, Failures, Patience
from app.core.errors import TooManyAttempts


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the failures of an attempt count for.

    Subjects in `refusing` make further attempts wait. Those in `slowing` only make them slow, from
    so many failures on: strangers can raise their counts, and must not lock anybody out. Of two
    attempts, the one whose `networks` have failed less often goes first, and of several by one
    `client`, its largest network or the person, others go before the second; a known device goes
    before all.
    """

    refusing: Mapping[str, Patience]
    slowing: Mapping[str, float] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    client: str = ""
    is_known_device: bool = False

    @property
    def subjects(self) -> tuple[str, ...]:
        """All that a failure counts for."""
        return tuple({**self.refusing, **self.slowing})


class PasswordChecks:
    """Checks passwords as often as `Limits` allow."""

    def __init__(
        self, passwords: Passwords, attempts: AttemptRecords, *, clock: Callable[[], datetime]
    ) -> None:
        self._passwords = passwords
        self._attempts = attempts
        self._clock = clock

    def failures_after(
        self, stored: str | None, password: str, limits: Limits
    ) -> Mapping[str, Failures]:
        """Nothing if the password is right; otherwise what its subjects have failed by now.

        Raises `TooManyAttempts` and `ServerBusy`.
        """
        before = self._require_patience(limits)
        counts = {name: before[name].count for name in before}
        is_slow = any(counts.get(name, 0) >= free for name, free in limits.slowing.items())
        rank = max((counts.get(name, 0) for name in limits.networks), default=0)
        priority = FIRST if limits.is_known_device else rank
        with self._passwords.turn(priority, client=limits.client, is_slow=is_slow):
            self._require_patience(limits)  # Others may have failed while this one waited.
            if not self._passwords.is_right(stored, password):
                return self._attempts.failed(limits.subjects, self._clock())
        if before.keys() & limits.refusing.keys():
            self._attempts.forget(limits.refusing.keys())
        return {}

    def count(self, subjects: Mapping[str, Patience]) -> None:
        """Count an attempt before it is made; raises `TooManyAttempts` if one of them must wait.

        For what is checked at once: of many attempts at the same time, none goes uncounted.
        """
        _require_no(self._attempts.count_unless_waiting(subjects, self._clock()))

    def forget(self, *subjects: str) -> None:
        """Forget the failures of these: the last attempt was right."""
        self._attempts.forget(subjects)

    def failures_of(self, subject: str) -> Failures | None:
        """The failures of a subject that still count."""
        return self._attempts.failures([subject], self._clock()).get(subject)

    def remove_old(self) -> None:
        """Remove failures that count no longer."""
        self._attempts.remove_old(self._clock())

    def _require_patience(self, limits: Limits) -> Mapping[str, Failures]:
        now = self._clock()
        found = self._attempts.failures(limits.subjects, now)
        waits = (
            patience.wait(found[name], now)
            for name, patience in limits.refusing.items()
            if name in found
        )
        _require_no(max(waits, default=timedelta()))
        return found


def _require_no(wait: timedelta) -> None:
    if wait:
        seconds = math.ceil(wait.total_seconds())
        raise TooManyAttempts(f"Try again in {in_words(seconds)}.", wait_seconds=seconds)


def in_words(seconds: int) -> str:
    """A wait as "30 seconds" or "5 minutes"."""
    if seconds < 60:
        return f"{seconds} second{'s' * (seconds != 1)}"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} minute{'s' * (minutes != 1)}"
