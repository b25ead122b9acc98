"""The SQLite backend: a file, one writer at a time, a write-ahead log."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, delete, event
from sqlalchemy.pool import PoolProxiedConnection

from app.core.errors import StorageFailed
from app.db.errors import DATABASE_ERRORS, is_busy
from app.ingest.write_probe import WriteProbe

BUSY_SECONDS = 60.0
"""How long a writer waits for another process's transaction; each takes a few milliseconds."""

CHECKPOINT_SECONDS = 2.0
"""How long a stopping server waits for another process's transaction."""


class SqliteFile:
    """The database in a file; `synced` makes each commit survive a power cut."""

    has_one_writer = True

    def __init__(self, url: URL, *, synced: bool, busy_seconds: float = BUSY_SECONDS) -> None:
        self._url = url
        self._synced = synced
        self._busy_seconds = busy_seconds
        self._probe = WriteProbe()

    @property
    def path(self) -> Path | None:
        """The file; None for a database in memory."""
        return Path(self._url.database) if self._url.database else None

    @cached_property
    def _folder(self) -> Path:
        """The folder of the file, after resolving a symlink."""
        return Path(self._url.database or "").resolve().parent

    def engine(self, connections: int) -> Engine:
        """Returns a pool that keeps this many connections, and opens up to twice as many."""
        engine = create_engine(
            self._url, pool_size=connections, max_overflow=connections, pool_timeout=60
        )
        event.listen(engine, "connect", self._set_up)
        return engine

    def _set_up(self, connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # The driver would delay BEGIN; the engine sends its own.
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(f"PRAGMA busy_timeout={int(self._busy_seconds * 1000)}")
                _use_write_ahead_log(cursor, self._busy_seconds)
                cursor.execute(f"PRAGMA synchronous={'FULL' if self._synced else 'NORMAL'}")
                cursor.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()  # The pool drops it without closing it.
            raise

    def autocommit(self, engine: Engine) -> Engine:
        """Returns the same engine: each statement is its own transaction until one begins."""
        return engine

    @contextmanager
    def snapshot(self, engine: Engine) -> Iterator[Connection]:
        """Yields a connection that sees what was committed at its first statement."""
        with engine.connect() as connection, connection.begin():
            connection.connection.execute("BEGIN")
            yield connection

    @contextmanager
    def begun(self, connection: Connection) -> Iterator[None]:
        """Hold the write lock from the start of a transaction to just before its commit.

        A transaction that reads first and writes later fails at once if another has written in
        between; with the lock, it waits. Only processes compete for the lock, since SQLite polls
        for it with growing pauses. If the disk is full or fails, SQLite rolls back the whole
        transaction, including the savepoints of all writers, and the driver's commit() does not
        raise.
        """
        driver = connection.connection
        driver.execute("BEGIN IMMEDIATE")
        yield
        if not driver.in_transaction:
            raise StorageFailed("The database rolled the transaction back.")

    def relax_durability(self, _connection: Connection) -> None:
        """Nothing to do: other writers may share the transaction."""

    def require_durable(self) -> None:
        """Raise `StorageFailed` if the disk may have lost the last commit."""
        if not self._synced or self.path is None:
            return
        try:
            self._probe.require_writable(self._folder)
        except OSError as error:
            raise StorageFailed(f"The database's disk failed: {error.strerror}.") from error

    def prepare(self) -> None:
        """Make the file private before its first use; raises `StorageFailed`."""
        if self.path is not None:
            keep_private(self.path)

    def require_limits(self, _connection: Connection) -> None:
        """Nothing to do: a busy timeout is set on each connection."""

    def lock_for_migration(self, connection: Connection) -> None:
        """Nothing to do: a write transaction is exclusive."""

    def change_mark(self, engine: Engine) -> Callable[[], object]:
        """Returns a function for SQLite's data version; see "PRAGMA data_version"."""
        kept: list[PoolProxiedConnection] = []

        def version() -> object:
            try:
                if not kept:
                    kept.append(engine.raw_connection())
                return kept[0].cursor().execute("PRAGMA data_version").fetchone()
            except DATABASE_ERRORS:
                while kept:
                    kept.pop().invalidate()
                return object()  # The query will raise the error.

        return version

    def checkpoint(self) -> None:
        """Write the write-ahead log back to the database, once all processes have ended.

        Closing the last connection to a SQLite database does that; exiting processes do not. If
        another process is still reading, the log stays: nothing is lost.
        """
        if self.path is not None and self.path.exists():
            with suppress(sqlite3.Error), closing(_open_file(self.path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def copy_to(self, path: Path, *, without: Collection[Table] = ()) -> None:
        """Copy the database to `path` consistently, during writes; leaves out rows of `without`.

        Raises `sqlite3.Error` if SQLite refuses; `path` must not be a database in use.
        """
        if self.path is None:
            raise ValueError(f"{self._url} is not a file")
        keep_private(path)
        with closing(_open_file(self.path)) as source, closing(_open_file(path)) as target:
            source.backup(target)  # One read transaction for all pages; it does not block writers.
            for table in without:
                target.execute(str(delete(table)))
            target.commit()
            # Makes it a single file without a log; a server switches it back.
            target.execute("PRAGMA journal_mode=DELETE")


def keep_private(file: Path) -> None:
    """Create a database file that only its owner can read, or restrict an existing one.

    SQLite gives -wal and -shm the mode of the database, but only when it creates them. Only the
    owner changes modes: other users who share the file cannot, or would lock themselves out.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # Opening one in use would drop SQLite's locks.
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode=0o600))
        for path in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            with suppress(FileNotFoundError):
                found = path.stat()
                if found.st_mode & 0o077 and found.st_uid == os.geteuid():
                    path.chmod(0o600)
    except OSError as error:
        raise StorageFailed(f"The database cannot be opened: {error.strerror}.") from error


def _open_file(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=CHECKPOINT_SECONDS)


def _use_write_ahead_log(cursor: Any, busy_seconds: float) -> None:
    """Switch to WAL, and retry while another process opens the same new database.

    Here SQLite returns "database is locked" at once, ignoring the busy timeout. If it cannot
    switch, it returns the old mode, and this raises `StorageFailed`.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            (mode,) = cursor.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            break
    if mode != "wal":
        raise StorageFailed(
            "The database is on a file system without shared memory between processes, such as "
            "NFS: put SLUICE_DATA_DIR on a local disk."
        )
