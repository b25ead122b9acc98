"""Runs statements beside SQLAlchemy's `execute`: a chunk's on the bare driver; inserts; locks.

`fetch` and `run` are for the statements of each chunk and file (`app/records/statements.py`): with
`execute`, a chunk of 64 KiB costs the server 18 % more CPU (`python -m bench record_path`).
`fetch`, for queries, also finds the derived files that players ask for, such as segments
(`app/video/serve/derived_files.py`). All other statements use `execute`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from threading import Condition, Event
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Insert,
    Select,
    Table,
    and_,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement

Convert = Callable[[Any], Any]


def fetch(
    connection: Connection, statement: Select[Any], values: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """Returns all rows of a query, converted to the types of its columns.

    Here and below, `statement` must live as long as the program; raises SQLAlchemy's errors.
    """
    compiled, found = _compiled(statement, connection.dialect), []
    for row in _execute(connection, compiled, values).fetchall():
        cells = list(row)
        for place, convert in compiled.outputs:
            cells[place] = convert(cells[place])
        found.append(tuple(cells))
    return found


def run(connection: Connection, statement: Executable, values: Mapping[str, object]) -> int:
    """Run a statement that returns no rows; returns how many rows it changed."""
    changed: int = _execute(connection, _compiled(statement, connection.dialect), values).rowcount
    return changed


def run_together(
    connection: Connection, statement: Executable, values: Sequence[Mapping[str, object]]
) -> list[int]:
    """Run a statement with each of the values in one round trip; returns the row count of each.

    Only for psycopg. On a connection for reading it is one transaction.
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
    """The text of a statement for one kind of database, and the conversions of its values."""

    text: str
    inputs: Sequence[tuple[str, Convert | None]]
    is_positional: bool
    outputs: Sequence[tuple[int, Convert]]

    def parameters(self, values: Mapping[str, object]) -> Any:
        if self.is_positional:
            return [
                values[name] if convert is None else convert(values[name])
                for name, convert in self.inputs
            ]
        return {
            name: values[name] if convert is None else convert(values[name])
            for name, convert in self.inputs
        }


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


# ---- shared updates ------------------------------------------------------------------------------

# Concurrent updates share one round trip and one commit on a server.
#
# The counterpart of SQLite's `GroupCommit`: a commit waits some milliseconds for the server's
# disk, and updates that arrive during that time in the same process are sent together afterwards.
#
# Threads that record one chunk after another would form two batches, each waiting for the other's
# commit. So the threads of the last batch get a moment to return before the next batch is sent.


MOST_TOGETHER = 64
"""Limit on the updates of one commit."""

RETURN_SHARE = 0.25
"""How long a batch waits for the threads of the last batch, as a share of the time that one took.

Of 16 threads, 13 to 15 then share each commit instead of 8; waiting twice as long adds one."""

RETURN_SECONDS = 0.01
"""Limit of that wait: a commit that takes over 40 ms was waiting for more than the disk."""

Change = TypeVar("Change")


class _Waiting(Generic[Change]):
    """A waiting change: `is_made` is set once it was tried, or `error` if its whole batch failed.

    If its thread wakes with neither set, it must try the oldest changes itself.
    """

    __slots__ = ("change", "error", "is_made", "woken")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.is_made: bool | None = None
        self.error: BaseException | None = None
        self.woken = Event()


class SharedUpdates(Generic[Change]):
    """Batches changes: `make` tries several in one commit and returns whether each was made.

    For chunks on PostgreSQL with files in folders, thus on one machine: with 16 uploads at once, a
    commit for each chunk of 64 KiB costs 8 % more CPU (`python -m bench record_path`). With files
    in a bucket, as in a fleet, a chunk commits alone, together with the rows of its pieces. `make`
    must not wait for locks: that would block the rest of the batch.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Change]], Sequence[bool]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._clock = clock
        self._waiting: list[_Waiting[Change]] = []
        self._gathering = Condition()
        self._is_busy = False
        self._expected = 1
        self._expected_until = 0.0

    def make(self, change: Change) -> bool:
        """Try a change together with those of other waiting threads; returns whether it was made.

        Raises the error that `make` raised for the whole batch.
        """
        own = _Waiting(change)
        with self._gathering:
            self._waiting.append(own)
            is_first, self._is_busy = not self._is_busy, True
            if len(self._waiting) == self._expected:
                self._gathering.notify()
        if not is_first:
            own.woken.wait()
        if own.is_made is None and own.error is None:
            self._make_oldest()  # Its own change is the oldest.
        if own.error is not None:
            raise own.error
        return own.is_made is True

    def _make_oldest(self) -> None:
        taken = self._gathered()
        began = self._clock()
        try:
            made = self._make([each.change for each in taken])
        except BaseException as error:  # noqa: BLE001 - each waiting thread raises it
            for each in taken:
                each.error = error
        else:
            for each, is_made in zip(taken, made, strict=True):
                each.is_made = is_made
        ended = self._clock()
        with self._gathering:  # The next batch begins before these threads continue.
            self._expected = min(len(taken) + len(self._waiting), MOST_TOGETHER)
            self._expected_until = ended + min((ended - began) * RETURN_SHARE, RETURN_SECONDS)
            self._is_busy = bool(self._waiting)
            if self._waiting:
                self._waiting[0].woken.set()
        for each in taken:
            each.woken.set()

    def _gathered(self) -> list[_Waiting[Change]]:
        """Take the oldest changes once the last batch's threads are back or the wait is over."""
        with self._gathering:
            while len(self._waiting) < self._expected:
                seconds = self._expected_until - self._clock()
                if seconds <= 0:
                    break
                self._gathering.wait(seconds)
            taken, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
        return taken


# ---- prefixes ------------------------------------------------------------------------------------


def begins_with(
    connection: Connection, column: ColumnElement[str], prefix: str
) -> ColumnElement[bool]:
    """A condition for which the database reads a range of an index, unlike LIKE in SQLite.

    PostgreSQL needs an index with the operators `varchar_pattern_ops`; it also serves equality.
    """
    beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    if connection.dialect.name == "postgresql":  # Else its order is that of the collation.
        return and_(column.bool_op("~>=~")(prefix), column.bool_op("~<~")(beyond))
    return and_(column >= prefix, column < beyond)


# ---- inserts -------------------------------------------------------------------------------------

# Inserts, with or without ON CONFLICT, in SQLite and PostgreSQL.


KNOWN_BY = "known_by"
"""Key in a table's `info`: the unique columns that identify a row, if not the primary key."""


class InsertUnlessKnown(Insert):
    """Inserts a row unless there is one with the same key.

    SQLite and PostgreSQL share the syntax. SQLAlchemy's separate classes would import the whole
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
    """Insert a row unless there is one with the same key; returns whether it did."""
    statement = InsertUnlessKnown(table).values(row).execution_options(preserve_rowcount=True)
    return connection.execute(statement).rowcount == 1


def upsert_into(table: Table, dialect: str) -> Any:
    """Returns SQLAlchemy's `Insert` for "sqlite" or "postgresql"; importing both takes 0.04 s."""
    return import_module(f"sqlalchemy.dialects.{dialect}").insert(table)


def insert_row(connection: Connection, table: Table, value: object, **changed: object) -> None:
    """Insert a value with an attribute for each column; `changed` replaces some of them."""
    row = {column.name: getattr(value, column.name) for column in table.columns}
    connection.execute(insert(table).values({**row, **changed}))


# ---- locks ---------------------------------------------------------------------------------------

# Locks for transactions on a database server; SQLite allows one writer at a time.
#
# Lock order: projects, people, members, keys, links, invitations. Two transactions that lock in
# different orders deadlock, and PostgreSQL ends one of them after a second.


def lock_row(connection: Connection, key: Column[str], value: str) -> bool:
    """Block other transactions from locking or changing this row until this one ends.

    They can still insert rows that refer to it. False if there is no such row.
    """
    query = select(key).where(key == value).with_for_update(key_share=True)
    return connection.execute(query).first() is not None


def lock_table(connection: Connection, table: Table) -> None:
    """Block other transactions from changing the table until this one ends; they can read it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE"))


def lock_name(connection: Connection, name: str) -> None:
    """Block other transactions from locking this name until this one ends.

    Call it after all other locks, so that its holder never waits for a row lock.
    """
    if connection.dialect.name == "postgresql":
        key = func.hashtextextended(name, 0)
        connection.execute(select(func.pg_advisory_xact_lock(key)))
