"""Which of several servers does what each of them could do; a file has one, which does all.

A turn is taken with a single statement and lasts for some time: nobody has to give it back, and one
whose server has died is free again at its end. Every moment is read from the database's clock.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, delete, type_coerce
from sqlalchemy.dialects.postgresql import insert

from app.records.clock import SECOND, SERVER_NOW
from app.records.engine import Database
from app.records.tables import turns

FORGOTTEN_SECONDS = 24 * 3600

_DUE_AT = type_coerce(turns.c.due_at, BigInteger)


class Turns:
    """Every call is one statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, work: str, seconds: float) -> bool:
        """Whether this server does that work now; if so, no other one begins it for this time.

        Work that takes longer may be begun twice, so it must be harmless to do it twice.
        """
        if not self._database.is_remote:
            return True
        statement = insert(turns).values(work=work, due_at=SERVER_NOW + round(seconds * SECOND))
        taken = statement.on_conflict_do_update(
            index_elements=["work"],
            set_={"due_at": statement.excluded.due_at},
            where=_DUE_AT <= SERVER_NOW,
        )
        with self._database.one_statement() as connection:
            return connection.execute(taken.returning(turns.c.work)).first() is not None

    @property
    def are_shared(self) -> bool:
        """Whether there may be other servers."""
        return self._database.is_remote

    def end(self, work: str) -> None:
        """Forget work that is done for good."""
        if self._database.is_remote:
            with self._database.one_statement() as connection:
                connection.execute(delete(turns).where(turns.c.work == work))

    def remove_old(self) -> None:
        """Forget work that a server has begun long ago and nobody has ended, as it died."""
        if self._database.is_remote:
            with self._database.one_statement() as connection:
                connection.execute(
                    delete(turns).where(_DUE_AT < SERVER_NOW - FORGOTTEN_SECONDS * SECOND)
                )
