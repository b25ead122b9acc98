"""Moves all records from one database to another, whatever their kinds.

Rows are copied table by table, in the order of their keys, a thousand in a transaction. A copy that
was cut off goes on after the last row that the target has; a table there says that it is not
finished, and no server starts on it. At the end every row is compared: if the source has changed
before the copy went on, it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    delete,
    func,
    insert,
    inspect,
    literal,
    select,
    tuple_,
)

from app.core.errors import StorageFailed
from app.db.engine import Database
from app.db.tables import encoders, leases, nodes, projects

ROWS_AT_ONCE = 1000

_OF_NODES = {encoders, nodes, leases}

TABLES = tuple(each for each in projects.metadata.sorted_tables if each not in _OF_NODES)
"""All tables with lasting content, each after those that its rows refer to."""

UNFINISHED = Table("unfinished_copy", MetaData(), Column("started", Integer, primary_key=True))
"""Stands in a database into which something is being copied."""

_ROWS = {projects: 1}
"""What migrations leave in a new database."""

Tell = Callable[[str, int], None]
"""Called with a table's name and its rows so far."""


class CopyRefused(Exception):
    """The message says why, and what to do."""


def copy_records(
    source: Database,
    target: Database,
    *,
    without: Collection[Table] = (),
    tell: Tell = lambda *_: None,
) -> int:
    """Copy every record, or what is left of a copy that was cut off; how many rows there are.

    All are of one moment; those of the tables in `without` are left out. Both databases must have
    the newest tables, those of the target as migrations leave them. Raises `CopyRefused`.
    """
    _begin(target)
    tables = [table for table in TABLES if table not in without]
    with source.snapshot() as reading:
        for table in tables:
            for count in _copy(table, reading, target):
                tell(table.name, count)
        total = sum(_compare(table, reading, target) for table in tables)
    _finish(target)
    return total


def require_finished(database: Database) -> None:
    """Raise `StorageFailed` if a copy into this database has begun and not ended."""
    with database.read() as connection:
        if inspect(connection).has_table(UNFINISHED.name):
            raise StorageFailed(
                "Records are being copied into this database, or that was cut off: run "
                "`database copy` again."
            )


def _begin(target: Database) -> None:
    with target.write() as connection:
        if inspect(connection).has_table(UNFINISHED.name):
            return
        full = [table.name for table in TABLES if _count(connection, table) > _ROWS.get(table, 0)]
        if full:
            raise CopyRefused(f"The target has records already, in {', '.join(full)}.")
        for table in _ROWS:
            connection.execute(delete(table))
        UNFINISHED.create(connection)


def _copy(table: Table, reading: Connection, target: Database) -> Iterator[int]:
    """The number of rows that the target has, after each transaction."""
    with target.read() as connection:
        count, last = _count(connection, table), _last_key(connection, table)
    for rows in _rows(reading, table, after=last):
        with target.write() as writing:
            writing.execute(insert(table), [dict(row._mapping) for row in rows])
        count += len(rows)
        yield count


def _compare(table: Table, reading: Connection, target: Database) -> int:
    """How many rows both have; raises `CopyRefused` unless they are the same."""
    with target.snapshot() as connection:
        here, there = _digest(reading, table), _digest(connection, table)
    if here != there:
        raise CopyRefused(
            f"The table {table.name} has changed since the copy began. Empty the target, and begin "
            "again; no server may run until the copy has ended."
        )
    return here[0]


def _finish(target: Database) -> None:
    """Have the numbers of new rows begin after those that were copied; it may be used then."""
    with target.write() as connection:
        if connection.dialect.name == "postgresql":  # SQLite takes the next one by itself.
            for table in TABLES:
                if table.autoincrement_column is not None:
                    _continue_numbers(connection, table, table.autoincrement_column)
        UNFINISHED.drop(connection)


def _continue_numbers(connection: Connection, table: Table, column: Column[Any]) -> None:
    last = connection.scalar(select(func.max(column)))
    if last is not None:
        sequence = func.pg_get_serial_sequence(table.name, column.name)
        connection.execute(select(func.setval(sequence, last)))


def _digest(connection: Connection, table: Table) -> tuple[int, str]:
    """The number of rows, and a digest of them in the order of their keys."""
    digest, count = hashlib.sha256(), 0
    for rows in _rows(connection, table):
        for row in rows:
            digest.update(repr(tuple(row)).encode())
        count += len(rows)
    return count, digest.hexdigest()


def _rows(
    connection: Connection, table: Table, *, after: Sequence[Any] | None = None
) -> Iterator[Sequence[Row[Any]]]:
    """All rows, or those after a key, in the order of their keys, `ROWS_AT_ONCE` at a time."""
    key = _key(connection, table)
    query = select(table).order_by(*key)
    if after is not None:
        place = [literal(value, column.type) for column, value in zip(key, after, strict=True)]
        query = query.where(tuple_(*key) > tuple_(*place))
    streamed = connection.execution_options(yield_per=ROWS_AT_ONCE)
    return streamed.execute(query).partitions()


def _last_key(connection: Connection, table: Table) -> Sequence[Any] | None:
    key = _key(connection, table)
    row = connection.execute(select(*key).order_by(*(each.desc() for each in key)).limit(1)).first()
    return None if row is None else tuple(row)


def _key(connection: Connection, table: Table) -> list[ColumnElement[Any]]:
    """The columns of the key; texts compare by their bytes, in whatever language the server is."""
    collation = "C" if connection.dialect.name == "postgresql" else "BINARY"
    return [
        column.collate(collation) if isinstance(column.type, String) else column
        for column in table.primary_key
    ]


def _count(connection: Connection, table: Table) -> int:
    return connection.scalar(select(func.count()).select_from(table)) or 0
