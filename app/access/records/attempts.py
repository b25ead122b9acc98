"""The records of failed sign-ins, and of mail: what one may do a few times, and then must wait."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from app.db.engine import Database
from app.db.sql import insert_unless_known
from app.db.tables import attempts

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
class Patience:
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

    def count_unless_waiting(self, subjects: Mapping[str, Patience], now: datetime) -> timedelta:
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
        """Forget those that count no longer; whichever is counted anew just now can stay."""
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
    return [_locked_one(connection, name, now) for name in sorted(subjects)]


def _locked_one(connection: Connection, name: str, now: datetime) -> Row[Any]:
    row = select(attempts).where(attempts.c.subject == name).with_for_update()
    while True:
        new = {"subject": name, "failures": 0, "last_at": now}
        insert_unless_known(connection, attempts, new)
        found = connection.execute(row).first()
        if found is not None:  # Otherwise it was deleted in between.
            return found
