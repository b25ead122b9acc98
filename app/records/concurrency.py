"""Locks for transactions on a database server; SQLite has one writer at a time.

Lock order: projects, people, members, keys, links, invitations. Two transactions that lock in
different orders deadlock, and PostgreSQL ends one of them after a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Insert,
    Table,
    cast,
    func,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

SECOND = 1_000_000
"""In microseconds, as `Instant` counts."""

SERVER_NOW: ColumnElement[int] = cast(
    func.extract("epoch", func.clock_timestamp()) * SECOND, BigInteger
)
"""The database server's time in the format of its columns, as the nodes' clocks may differ."""

KNOWN_BY = "known_by"
"""Key in a table's `info`: the unique columns that identify a row, if not the primary key."""


class InsertUnlessKnown(Insert):
    """Inserts a row unless there is one with the same key.

    SQLite and PostgreSQL share the syntax. SQLAlchemy's class for each would import the whole
    dialect.
    """

    inherit_cache = True


@compiles(InsertUnlessKnown)
def _unless_known(statement: Insert, compiler: SQLCompiler, **options: Any) -> str:
    words: str = compiler.visit_insert(statement, **options)  # type: ignore[no-untyped-call]
    table: Any = statement.table
    columns = table.info.get(KNOWN_BY) or table.primary_key.columns.keys()
    return f"{words} ON CONFLICT ({', '.join(columns)}) DO NOTHING"


def insert_unless_known(connection: Connection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert a row unless there is one with the same key; whether it did."""
    insert = InsertUnlessKnown(table).values(row).execution_options(preserve_rowcount=True)
    return connection.execute(insert).rowcount == 1


def lock_row(connection: Connection, key: Column[str], value: str) -> None:
    """Block others from locking or changing this row until the transaction ends.

    They may still insert rows that refer to it.
    """
    connection.execute(select(key).where(key == value).with_for_update(key_share=True))


def lock_table(connection: Connection, table: Table) -> None:
    """Block others from changing the table until the transaction ends; they may read it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE"))


def lock_name(connection: Connection, name: str) -> None:
    """Block others from locking this name until the transaction ends.

    Call it after all other locks, so that its holder never waits for a row lock.
    """
    if connection.dialect.name == "postgresql":
        key = func.hashtextextended(name, 0)
        connection.execute(select(func.pg_advisory_xact_lock(key)))
