"""Lists the bucket store's rows: used by the sweep and by reconciliation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import case, literal, select, union_all, update

from app.db.engine import Database
from app.db.nodes import Clock
from app.db.tables import Instant
from app.db.tables import stored_files as files
from app.records import bucket_statements as statements

PAGE = 1000
"""Page size, in rows, for reading a table of any length."""


class BucketInventory:
    """Implements `Inventory` for the bucket store; `clock` determines ages."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def has_files(self) -> bool:
        """Whether any file is stored or being received in a bucket."""
        with self._database.read() as connection:
            return connection.execute(select(files.c.key).limit(1)).first() is not None

    def staged(self) -> Iterator[tuple[str, float]]:
        """Unpublished files with their ages in seconds."""
        now = self._clock()
        for row in self._pages(files.c.is_published.is_(False)):
            yield row.key, (now - row.active_at).total_seconds()

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        return (row.key for row in self._pages(files.c.is_published))

    def shift_activity(self, later: timedelta) -> None:
        """Shift the activity times, but not into the future."""
        now, active_at = self._clock(), files.c.active_at
        shifted = active_at + literal(later // timedelta(microseconds=1))
        latest = case((active_at > now - later, literal(now, Instant)), else_=shifted)
        change = update(files).where(files.c.is_published.is_(False)).values(active_at=latest)
        with self._database.write() as connection:
            connection.execute(change)

    def objects(self) -> Iterator[tuple[str, bool]]:
        """Yields names in byte order; of equal names, the needed one comes last."""
        needed, possible = statements.NEEDED, statements.POSSIBLE
        named = union_all(
            select(needed.c[0].label("name"), literal(1).label("is_needed")),
            select(possible.c[0], literal(0)),
        ).subquery()
        with self._database.snapshot() as connection:
            collation = "C" if connection.dialect.name == "postgresql" else "BINARY"
            query = select(named).order_by(named.c.name.collate(collation), named.c.is_needed)
            for row in connection.execution_options(yield_per=PAGE).execute(query):
                yield row.name, bool(row.is_needed)

    def is_needed(self, name: str) -> bool:
        """Whether a file or a stored piece has this name."""
        return self._is_among([statements.NEEDED], name)

    def is_known(self, name: str) -> bool:
        """Whether any row has this name."""
        return self._is_among([statements.NEEDED, statements.POSSIBLE], name)

    def _is_among(self, tables: Sequence[Any], name: str) -> bool:
        with self._database.read() as connection:
            return any(
                connection.execute(select(table.c[0]).where(table.c[0] == name).limit(1)).first()
                for table in tables
            )

    def _pages(self, condition: Any) -> Iterator[Any]:
        last = ""
        while True:
            query = select(files.c.key, files.c.active_at).where(condition, files.c.key > last)
            with self._database.read() as connection:
                rows = connection.execute(query.order_by(files.c.key).limit(PAGE)).all()
            yield from rows
            if len(rows) < PAGE:
                return
            last = rows[-1].key
