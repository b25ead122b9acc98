"""The records of failed sign-ins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, select, update

from app.records.engine import Database
from app.records.identity.tables import attempts
from app.records.inserts import insert_unless_known

FORGOTTEN_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many failures cost nothing, and how long one waits at most after many."""

    free: int
    most: timedelta = timedelta(minutes=15)

    def wait(self, failures: int, last_at: datetime, now: datetime) -> timedelta:
        """How much longer to wait: a second after the first that counts, then twice as long."""
        if failures < self.free:
            return timedelta()
        seconds = 2.0 ** min(failures - self.free, 30)
        pause = min(timedelta(seconds=seconds), self.most)
        return max(last_at + pause - now, timedelta())


_IS_UNUSED = attempts.c.failures == 0


class AttemptRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, subjects: Mapping[str, Patience], now: datetime) -> timedelta:
        """Count a failure of each subject in advance, unless one has to wait; how long.

        Counted before the password is checked: of many attempts at the same time none slips by.
        """
        with self._database.write() as connection:
            known = {
                row.subject: row
                for row in _locked(connection, sorted(subjects), now)
                if now - row.last_at < FORGOTTEN_AFTER
            }
            waits = [
                subjects[name].wait(row.failures, row.last_at, now) for name, row in known.items()
            ]
            if any(waits):
                connection.execute(delete(attempts).where(_is_one_of(subjects), _IS_UNUSED))
                return max(waits)
            for name in subjects:
                failures = known[name].failures + 1 if name in known else 1
                change = update(attempts).where(attempts.c.subject == name)
                connection.execute(change.values(failures=failures, last_at=now))
        return timedelta()

    def succeeded(self, *, forgiven: Collection[str], taken_back: Collection[str]) -> None:
        """Forget all failures of the former; of the latter only the last one was none."""
        one_less = update(attempts).where(_is_one_of(taken_back))
        with self._database.write() as connection:
            connection.execute(delete(attempts).where(_is_one_of(forgiven)))
            connection.execute(one_less.values(failures=attempts.c.failures - 1))

    def remove_old(self, now: datetime) -> None:
        """Forget those that count no longer."""
        with self._database.write() as connection:
            connection.execute(delete(attempts).where(attempts.c.last_at <= now - FORGOTTEN_AFTER))


def _locked(connection: Connection, names: Sequence[str], now: datetime) -> Sequence[Row[Any]]:
    """Lock and return a row for each subject; a new one has no failures.

    `names` must be sorted, so that two transactions never deadlock.
    """
    rows = select(attempts).where(_is_one_of(names)).order_by(attempts.c.subject)
    while True:
        for name in names:
            row = {"subject": name, "failures": 0, "last_at": now}
            insert_unless_known(connection, attempts, row)
        found = connection.execute(rows.with_for_update()).all()
        if len(found) == len(names):  # Otherwise one was deleted in between.
            return found


def _is_one_of(subjects: Collection[str]) -> ColumnElement[bool]:
    return attempts.c.subject.in_(list(subjects))
