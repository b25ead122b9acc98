"""Checks passwords that strangers may guess, and counts their failures and other attempts.

A failure counts once it has happened. A right password, and a server that is too busy to check it,
count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from app.access.passwords import FIRST, Passwords
from app.core.addresses import is_loopback, network_of, site_of
from app.core.errors import InvalidField, TooManyAttempts
from app.db.engine import Database
from app.db.sql import insert_unless_known
from app.db.tables import attempts

# ---- rows ----------------------------------------------------------------------------------------

# The records of failed sign-ins, and of mail: what one may do a few times, and then must wait.


FORGOTTEN_AFTER = timedelta(days=1)
"""All failures; some are forgotten whenever another one is counted sooner: see `Failures.left`."""


@dataclass(frozen=True, slots=True)
class Failures:
    """How often a subject has failed of late, and when last."""

    count: int
    last_at: datetime

    def left(self, now: datetime) -> int:
        """How many the next one adds to: the more of a day has passed, the fewer.

        With one after the other at a steady pace, the count is about as many as a day has.
        """
        passed = max(now - self.last_at, timedelta()) / FORGOTTEN_AFTER
        return math.ceil(self.count * max(1 - passed, 0))


@dataclass(frozen=True, slots=True)
class Backoff:
    """How many failures cost nothing, and how long one waits: `first`, and `most` after many."""

    free: int
    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(minutes=15)

    def wait(self, failures: Failures, now: datetime) -> timedelta:
        """How much longer to wait: `first` after the first that counts, then twice as long."""
        if failures.count < self.free:
            return timedelta()
        doubled = 2.0 ** min(failures.count - self.free, 20)
        pause = min(self.first * doubled, self.most)
        since = now - failures.last_at
        return max(pause - max(since, timedelta()), timedelta())  # The clock may have been set.


class AttemptRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def failures(self, subjects: Collection[str], now: datetime) -> Mapping[str, Failures]:
        """The failures that still count, of those subjects that have some."""
        query = select(attempts).where(attempts.c.subject.in_(list(subjects)))
        with self._database.read() as connection:
            return _counting(connection.execute(query).all(), now)

    def failed(self, subjects: Collection[str], now: datetime) -> Mapping[str, Failures]:
        """Count one more failure of each subject; returns the new counts."""
        with self._database.write() as connection:
            before = _counting(_locked(connection, subjects, now), now)
            return _count(connection, subjects, before, now)

    def count_unless_waiting(self, subjects: Mapping[str, Backoff], now: datetime) -> timedelta:
        """Count one more of each subject, unless one of them has to wait; returns how long."""
        with self._database.write() as connection:
            before = _counting(_locked(connection, subjects, now), now)
            waits = (subjects[name].wait(failures, now) for name, failures in before.items())
            wait = max(waits, default=timedelta())
            if not wait:
                _count(connection, subjects, before, now)
        return wait

    def forget(self, subjects: Collection[str]) -> None:
        """Forget all failures of these subjects."""
        with self._database.write() as connection:
            for name in sorted(subjects):
                connection.execute(delete(attempts).where(attempts.c.subject == name))

    def remove_old(self, now: datetime) -> None:
        """Delete those that no longer count; one that is being counted again may stay."""
        old = select(attempts.c.subject).where(attempts.c.last_at <= now - FORGOTTEN_AFTER)
        old = old.with_for_update(skip_locked=True)
        with self._database.write() as connection:
            connection.execute(delete(attempts).where(attempts.c.subject.in_(old)))


def _counting(rows: Sequence[Row[Any]], now: datetime) -> dict[str, Failures]:
    return {
        row.subject: Failures(row.failures, row.last_at)
        for row in rows
        if row.failures and now - row.last_at < FORGOTTEN_AFTER
    }


def _count(
    connection: Connection,
    subjects: Collection[str],
    before: Mapping[str, Failures],
    now: datetime,
) -> Mapping[str, Failures]:
    after = {}
    for name in subjects:
        count = before[name].left(now) + 1 if name in before else 1
        change = update(attempts).where(attempts.c.subject == name)
        connection.execute(change.values(failures=count, last_at=now))
        after[name] = Failures(count, now)
    return after


def _locked(connection: Connection, subjects: Collection[str], now: datetime) -> list[Row[Any]]:
    """Lock and return a row for each subject; a new one has no failures.

    One after the other in their order, so that two transactions never deadlock.
    """
    rows = []
    for name in sorted(subjects):
        row = select(attempts).where(attempts.c.subject == name).with_for_update()
        found = None
        while found is None:  # It may be deleted in between.
            new = {"subject": name, "failures": 0, "last_at": now}
            insert_unless_known(connection, attempts, new)
            found = connection.execute(row).first()
        rows.append(found)
    return rows


# ---- rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimits:
    """What the failures of an attempt count for.

    Subjects in `refusing` make further attempts wait. Those in `slowing` only make them slow, from
    so many failures on: strangers can raise their counts, and must not lock anybody out. Of two
    attempts, the one whose `networks` have failed less often goes first, and of several by one
    `client`, its largest network or the person, others go before the second; a known device goes
    before all.
    """

    refusing: Mapping[str, Backoff]
    slowing: Mapping[str, float] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    client: str = ""
    is_known_device: bool = False

    @property
    def subjects(self) -> tuple[str, ...]:
        """All that a failure counts for."""
        return tuple({**self.refusing, **self.slowing})


class PasswordChecks:
    """Checks passwords as often as `AttemptLimits` allow."""

    def __init__(
        self, passwords: Passwords, attempts: AttemptRecords, *, clock: Callable[[], datetime]
    ) -> None:
        self._passwords = passwords
        self._attempts = attempts
        self._clock = clock

    def failures_after(
        self, stored: str | None, password: str, limits: AttemptLimits
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

    def count(self, subjects: Mapping[str, Backoff]) -> None:
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

    def _require_patience(self, limits: AttemptLimits) -> Mapping[str, Failures]:
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


# ---- passwords of links --------------------------------------------------------------------------

OF_NETWORK = Backoff(free=10, most=timedelta(minutes=1))
"""At one link. All guests of a party share one address: they never wait long for a stranger."""

SLOW_FROM = 100
"""Failures at a link per day, from all networks together, after which every check is slow. They
never lock the link: otherwise a stranger could lock the guests out."""


class LinkPasswords:
    """Hashes and checks them."""

    def __init__(self, passwords: Passwords, checks: PasswordChecks) -> None:
        self._passwords = passwords
        self._checks = checks

    def hash(self, password: str) -> str | None:
        """The hash to store, or None for an empty password; raises `ServerBusy`."""
        return self._passwords.hash(password) if password else None

    def check(self, link_id: str, stored: str, password: str, *, address: str) -> None:
        """Raise `InvalidField` for another password, and `TooManyAttempts` after many of them."""
        network, site = network_of(address), site_of(address)
        here = f"link:{link_id}:{network}"
        of_site = [f"link:{link_id}:{site}"] if site else []
        limits = AttemptLimits(
            refusing={here: OF_NETWORK},
            slowing=dict.fromkeys([f"link:{link_id}", *of_site], SLOW_FROM),
            networks=(here, *of_site),
            client="" if is_loopback(address) else site or network,
        )
        if self._checks.failures_after(stored, password, limits):
            raise InvalidField("This is not the password.", field="password")
