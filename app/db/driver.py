"""Runs the statements of a chunk, compiled once, directly on the database driver.

A second path besides SQLAlchemy's `execute`, only for speed: without it a chunk of 64 KiB costs the
server 15 % more CPU (`python -m bench record_path`). Delete it once that is below 10 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, Dialect, Select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement

Convert = Callable[[Any], Any]


def fetch(
    connection: Connection, statement: Select[Any], values: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """All rows of a query, with the types of its columns.

    Here and below, `statement` must live as long as the program; errors are SQLAlchemy's.
    """
    compiled = _compiled(statement, connection.dialect)
    rows = _execute(connection, compiled, values).fetchall()
    return [compiled.converted(row) for row in rows]


def run(connection: Connection, statement: Executable, values: Mapping[str, object]) -> int:
    """Run a statement that returns no rows; returns how many rows it changed."""
    changed: int = _execute(connection, _compiled(statement, connection.dialect), values).rowcount
    return changed


def run_together(
    connection: Connection, statement: Executable, values: Sequence[Mapping[str, object]]
) -> list[int]:
    """Run a statement with each of the values in one round trip; how many rows each changed.

    For psycopg alone. On a connection for reading it is one transaction.
    """
    if len(values) == 1:  # A pipeline would cost a quarter more CPU.
        return [run(connection, statement, values[0])]
    compiled, driver = _compiled(statement, connection.dialect), connection.dialect.loaded_dbapi
    cursor: Any = connection.connection.cursor()
    try:
        cursor.executemany(compiled.text, [*map(compiled.parameters, values)], returning=True)
        changed = [cursor.rowcount]
        while cursor.nextset():
            changed.append(cursor.rowcount)
    except driver.Error as error:
        raise DBAPIError.instance(compiled.text, None, error, driver.Error) from error
    return changed


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The text of a statement for one kind of database, and how its values are converted."""

    text: str
    inputs: Sequence[tuple[str, Convert | None]]
    is_positional: bool
    outputs: Sequence[tuple[int, Convert]]

    def parameters(self, values: Mapping[str, object]) -> Any:
        found = [
            values[name] if convert is None else convert(values[name])
            for name, convert in self.inputs
        ]
        if self.is_positional:
            return found
        return {name: value for (name, _), value in zip(self.inputs, found, strict=True)}

    def converted(self, row: Sequence[Any]) -> tuple[Any, ...]:
        cells = list(row)
        for place, convert in self.outputs:
            cells[place] = convert(cells[place])
        return tuple(cells)


def _execute(connection: Connection, compiled: _Compiled, values: Mapping[str, object]) -> Any:
    driver = connection.dialect.loaded_dbapi
    cursor = connection.connection.cursor()
    try:
        cursor.execute(compiled.text, compiled.parameters(values))
    except driver.Error as error:
        raise DBAPIError.instance(compiled.text, None, error, driver.Error) from error
    return cursor


@cache
def _compiled(statement: ClauseElement, dialect: Dialect) -> _Compiled:
    compiled = cast(SQLCompiler, statement.compile(dialect=dialect))
    names = (compiled.positiontup if compiled.positional else list(compiled.binds)) or ()
    types_in = [compiled.binds[name].type.dialect_impl(dialect) for name in names]
    columns = statement.selected_columns if isinstance(statement, Select) else ()
    types_out = [column.type.dialect_impl(dialect) for column in columns]
    converts = [kind.result_processor(dialect, None) for kind in types_out]
    return _Compiled(
        text=str(compiled),
        inputs=[
            (name, kind.bind_processor(dialect)) for name, kind in zip(names, types_in, strict=True)
        ],
        is_positional=compiled.positional,
        outputs=[(place, convert) for place, convert in enumerate(converts) if convert],
    )
