"""One commit for the writers that wait at the same time.

SQLite has one writer, and a commit waits for the disk: some milliseconds each, one after the
other. Writers of one process therefore share a transaction: each does its work in a savepoint,
hands on to the next who waits, and the last of them commits for all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Event, Lock

from sqlalchemy import Connection

from app.domain.errors import StorageFailed
from app.records.errors import DATABASE_ERRORS

MOST_IN_A_GROUP = 64
"""Writers of one transaction; it keeps other processes waiting for so long."""


class _Group:
    """A transaction under way, and those who wait for its end."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(begin())
        self.size = 0
        self._has_ended = Event()
        self._error: BaseException | None = None

    @contextmanager
    def undone_alone(self) -> Iterator[None]:
        """What raises takes back what it did, and nothing that others did before it.

        Where that cannot be, it takes back all, and the group's commit fails; so SQLite itself does
        on a full disk. Raises `StorageFailed` after that: a savepoint would begin a transaction,
        which its release commits. SQLAlchemy's own savepoints cost 40 times what SQLite's do.
        """
        driver = self.connection.connection
        if not driver.in_transaction:
            raise StorageFailed("The database rolled the transaction back.")
        driver.cursor().execute("SAVEPOINT writer")
        try:
            yield
        except BaseException as error:
            try:
                driver.cursor().execute("ROLLBACK TO writer")
            except sqlite3.Error:
                driver.rollback()
                self._note_cause(error)
            raise
        driver.cursor().execute("RELEASE writer")

    def _note_cause(self, error: BaseException) -> None:
        """All are to be told of a full disk, and not only that their transaction is gone."""
        if isinstance(error, DATABASE_ERRORS):
            self._error = error

    def end(self) -> None:
        """Commit."""
        try:
            self._stack.close()
        except BaseException as error:
            if self._error is not None:
                raise self._error from error
            self._error = error
            raise
        finally:
            self._has_ended.set()

    def wait(self) -> None:
        """Return once it is committed, by whomever; raises what kept it from that."""
        self._has_ended.wait()
        if self._error is not None:
            raise self._error


class GroupCommit:
    """`begin` opens a transaction that commits when its context ends well."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._begin = begin
        self._working = Lock()
        self._waiting = 0
        self._counting = Lock()
        self._group: _Group | None = None

    @contextmanager
    def join(self) -> Iterator[Connection]:
        """Work in a transaction; it is committed when this ends, unless it raises.

        What raises is rolled back, and what the others did is not. It too leaves once they are
        committed, for it may have raised because of what they did, and others cannot see that yet.
        """
        group = None
        try:
            with self._turn() as group, group.undone_alone():
                yield group.connection
        finally:
            if group is not None:
                group.wait()

    @contextmanager
    def _turn(self) -> Iterator[_Group]:
        """The running group, or a new one, for one writer at a time."""
        self._count(1)
        with self._working:
            self._count(-1)
            group = self._group = self._group or _Group(self._begin)
            group.size += 1
            try:
                yield group
            finally:
                if not self._waiting or group.size == MOST_IN_A_GROUP:
                    self._group = None
                    group.end()

    def _count(self, change: int) -> None:
        with self._counting:
            self._waiting += change
