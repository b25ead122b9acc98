"""Group commit: writers that wait at the same time share one transaction.

SQLite has one writer at a time, and each commit waits some milliseconds for the disk. Writers of
one process therefore share a transaction: each works in a savepoint and hands over to the next
one waiting; the last one commits for all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Event, Lock

from sqlalchemy import Connection

from app.core.errors import StorageFailed
from app.db.errors import DATABASE_ERRORS

MOST_IN_A_GROUP = 64
"""Limit on the writers of one transaction, as other processes wait until it ends."""


class _Group:
    """An open transaction and the writers that wait for its end."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(begin())
        self.size = 0
        self._has_ended = Event()
        self._error: BaseException | None = None

    @contextmanager
    def undone_alone(self) -> Iterator[None]:
        """A savepoint: if the block raises, only its own changes are rolled back.

        If that is impossible, as on a full disk, the whole transaction is rolled back and the
        commit fails. Raises `StorageFailed` after that: a savepoint would begin a transaction that
        its release commits. SQLAlchemy's own savepoints cost 40 times as much.
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
        """So that all writers learn of a full disk, not only that their transaction is gone."""
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
        """Return once the transaction is committed; raises what prevented that."""
        self._has_ended.wait()
        if self._error is not None:
            raise self._error


class GroupCommit:
    """`begin` opens a transaction that commits when its context ends without an error."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._begin = begin
        self._working = Lock()
        self._waiting = 0
        self._counting = Lock()
        self._group: _Group | None = None

    @contextmanager
    def join(self) -> Iterator[Connection]:
        """Work in a transaction, which is committed when this ends without an error.

        A block that raises is rolled back alone. It too returns only after the commit: it may have
        raised because of what the others did, which nobody else can see before.
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
