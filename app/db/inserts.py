"""Inserts a row unless there is one with its key, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

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
    words: str = compiler.visit_insert(statement, **options)  # type: ignore[no-untyped-call]  # SQLAlchemy has no types here
    table: Any = statement.table
    columns = table.info.get(KNOWN_BY) or table.primary_key.columns.keys()
    return f"{words} ON CONFLICT ({', '.join(columns)}) DO NOTHING"


def insert_unless_known(connection: Connection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert a row unless there is one with the same key; whether it did."""
    insert = InsertUnlessKnown(table).values(row).execution_options(preserve_rowcount=True)
    return connection.execute(insert).rowcount == 1
