"""What keeps the transactions of a server apart; in SQLite there is one writer at a time.

Whoever locks rows of several tables takes projects first, then people, members, keys, links and
invitations. Two that take them in different orders would wait for each other, until PostgreSQL
ends one of them after a second.
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
"""The time on a database server, as its columns have it: the clocks of nodes may differ."""

KNOWN_BY = "known_by"
"""In a table's `info`: the unique columns that tell whether a row is known, if not its key."""


class InsertUnlessKnown(Insert):
    """Inserts a row unless there is one with the same key.

    SQLite and PostgreSQL agree on the words; SQLAlchemy has a class for each, which imports all
    that there is for that database.
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
    """Have others wait who lock this row too, or change it, until the transaction ends.

    Others may refer to it meanwhile: it stays.
    """
    connection.execute(select(key).where(key == value).with_for_update(key_share=True))


def lock_table(connection: Connection, table: Table) -> None:
    """Have others wait who change the table, until the transaction ends; they may read it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE"))


def lock_name(connection: Connection, name: str) -> None:
    """Have others wait who lock this name too, until the transaction ends.

    It comes last: who has it waits for no row that another who wants it has locked.
    """
    if connection.dialect.name == "postgresql":
        key = func.hashtextextended(name, 0)
        connection.execute(select(func.pg_advisory_xact_lock(key)))
