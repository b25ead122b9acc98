"""Copies all records from one database to another, of the same or another kind.

Rows are copied table by table, in key order, a thousand per transaction. An interrupted copy
resumes after the last row in the target; a marker table shows that the copy is unfinished, and no
server starts on that database. At the end every row is compared: if the source changed before the
copy resumed, the copy is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from app.core.errors import StorageFailed
from app.db.engine import Database
from app.db.tables import encoders, nodes, projects

ROWS_AT_ONCE = 1000

_OF_NODES = {encoders, nodes}

TABLES = tuple(each for each in projects.metadata.sorted_tables if each not in _OF_NODES)
"""All tables with persistent content, each after the tables that its rows refer to."""

UNFINISHED = sa.Table(
    "unfinished_copy", sa.MetaData(), sa.Column("started", sa.Integer, primary_key=True)
)
"""Marks a database that is the target of an unfinished copy."""

_ROWS = {projects: 1}
"""Row counts of a new database."""

Tell = Callable[[str, int], None]
"""Called with a table's name and its number of rows so far."""


class CopyRefused(Exception):
    """The copy is not possible; the message says why and what to do."""


def copy_records(
    source: Database,
    target: Database,
    *,
    without: Collection[sa.Table] = (),
    tell: Tell = lambda *_: None,
) -> int:
    """Copy every record, or resume an interrupted copy; returns the number of rows.

    All rows come from one snapshot; leaves out the tables in `without`. Both databases must have
    the newest schema, and the target only the rows of a new database. Raises `CopyRefused`.
    """
    _begin(target)
    tables = [table for table in TABLES if table not in without]
    with source.snapshot() as reading:
        for table in tables:
            with target.read() as connection:
                count, last = _count(connection, table), _last_key(connection, table)
            for rows in _rows(reading, table, after=last):
                with target.write() as writing:
                    writing.execute(sa.insert(table), [dict(row._mapping) for row in rows])
                count += len(rows)
                tell(table.name, count)
        total = sum(_compare(table, reading, target) for table in tables)
    with target.write() as connection:
        if connection.dialect.name == "postgresql":  # SQLite continues the numbers by itself.
            _continue_numbers(connection)
        UNFINISHED.drop(connection)
    return total


def require_finished(database: Database) -> None:
    """Raise `StorageFailed` if a copy into this database is unfinished."""
    with database.read() as connection:
        if sa.inspect(connection).has_table(UNFINISHED.name):
            raise StorageFailed(
                "Records are being copied into this database, or that was cut off: run "
                "`database copy` again."
            )


def _begin(target: Database) -> None:
    with target.write() as connection:
        if sa.inspect(connection).has_table(UNFINISHED.name):
            return
        full = [table.name for table in TABLES if _count(connection, table) > _ROWS.get(table, 0)]
        if full:
            raise CopyRefused(f"The target has records already, in {', '.join(full)}.")
        for table in _ROWS:
            connection.execute(sa.delete(table))
        UNFINISHED.create(connection)


def _compare(table: sa.Table, reading: sa.Connection, target: Database) -> int:
    """Returns the number of rows in both; raises `CopyRefused` unless all rows are equal."""
    with target.snapshot() as connection:
        here, there = _digest(reading, table), _digest(connection, table)
    if here != there:
        raise CopyRefused(
            f"The table {table.name} has changed since the copy began. Empty the target, and begin "
            "again; no server may run until the copy has ended."
        )
    return here[0]


def _continue_numbers(connection: sa.Connection) -> None:
    """Set the sequences of row numbers to the copied rows."""
    for table in TABLES:
        column = table.autoincrement_column
        last = None if column is None else connection.scalar(sa.select(sa.func.max(column)))
        if column is not None and last is not None:
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            connection.execute(sa.select(sa.func.setval(sequence, last)))


def _digest(connection: sa.Connection, table: sa.Table) -> tuple[int, str]:
    """Returns the number of rows, and a digest of them in key order."""
    digest, count = hashlib.sha256(), 0
    for rows in _rows(connection, table):
        for row in rows:
            digest.update(repr(tuple(row)).encode())
        count += len(rows)
    return count, digest.hexdigest()


def _rows(
    connection: sa.Connection, table: sa.Table, *, after: Sequence[Any] | None = None
) -> Iterator[Sequence[sa.Row[Any]]]:
    """Yields all rows, or those after a key, in key order, `ROWS_AT_ONCE` at a time."""
    key = _key(connection, table)
    query = sa.select(table).order_by(*key)
    if after is not None:
        place = [sa.literal(value, column.type) for column, value in zip(key, after, strict=True)]
        query = query.where(sa.tuple_(*key) > sa.tuple_(*place))
    streamed = connection.execution_options(yield_per=ROWS_AT_ONCE)
    return streamed.execute(query).partitions()


def _last_key(connection: sa.Connection, table: sa.Table) -> Sequence[Any] | None:
    key = _key(connection, table)
    row = connection.execute(
        sa.select(*key).order_by(*(each.desc() for each in key)).limit(1)
    ).first()
    return None if row is None else tuple(row)


def _key(connection: sa.Connection, table: sa.Table) -> list[sa.ColumnElement[Any]]:
    """The key columns; texts compare by their bytes, regardless of the server's collation."""
    collation = "C" if connection.dialect.name == "postgresql" else "BINARY"
    return [
        column.collate(collation) if isinstance(column.type, sa.String) else column
        for column in table.primary_key
    ]


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
