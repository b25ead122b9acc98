"""Leases on work that any node of a fleet could do. With SQLite one server does all of it.

A lease is taken with a single statement, and ends by itself even if its node has died. All times
are the database's.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, delete, type_coerce

from app.db.clock import SECOND, SERVER_NOW
from app.db.engine import Database
from app.db.tables import leases

FORGOTTEN_SECONDS = 24 * 3600
"""Leases that ended longer ago than this are deleted."""

_DUE_AT = type_coerce(leases.c.due_at, BigInteger)


class Leases:
    """Every call is one statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, work: str, seconds: float) -> bool:
        """Whether this node does that work now; if so, no other one begins it for this time.

        Work that takes longer may be begun twice, so it must be harmless to do it twice.
        """
        if not self._database.is_remote:
            return True
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - only with PostgreSQL

        statement = insert(leases).values(work=work, due_at=SERVER_NOW + round(seconds * SECOND))
        taken = statement.on_conflict_do_update(
            index_elements=["work"],
            set_={"due_at": statement.excluded.due_at},
            where=_DUE_AT <= SERVER_NOW,
        )
        with self._database.one_statement() as connection:
            return connection.execute(taken.returning(leases.c.work)).first() is not None

    @property
    def are_shared(self) -> bool:
        """Whether there may be other nodes."""
        return self._database.is_remote

    def end(self, work: str) -> None:
        """Give back the lease of work that is done for good."""
        if self._database.is_remote:
            with self._database.one_statement() as connection:
                connection.execute(delete(leases).where(leases.c.work == work))

    def remove_old(self) -> None:
        """Forget leases that ended long ago; nobody gave them back, as the node died."""
        if self._database.is_remote:
            with self._database.one_statement() as connection:
                connection.execute(
                    delete(leases).where(_DUE_AT < SERVER_NOW - FORGOTTEN_SECONDS * SECOND)
                )
