"""Opens the database and migrates its tables."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, delete, event
from sqlalchemy.engine import make_url

from app.domain.errors import StorageFailed
from app.records.errors import DATABASE_ERRORS, is_busy, is_read_only, raise_as_upload_error
from app.records.group_commit import GroupCommit
from app.records.schema import is_up_to_date, upgrade
from app.request.stages import Stage, stage

BUSY_SECONDS = 60.0
"""How long SQLite waits for another process's transaction; each takes a few milliseconds."""

CHECKPOINT_SECONDS = 2.0
"""How long a stopping server waits for another process's transaction."""


class Database:
    """Transactions on one database; connects when first used.

    `synced` makes each commit survive a power cut, not only a crash of the process.
    """

    def __init__(
        self, url: str, *, synced: bool, connections: int = 16, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._url = make_url(url)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self._engine = create_engine(
            self._url, pool_size=connections, max_overflow=connections, pool_timeout=60
        )
        if self._is_sqlite:
            _tune_sqlite(self._engine, synced=synced, busy_seconds=busy_seconds)
        # SQLite polls for its lock, with growing pauses: only processes should compete for it.
        self._begun = _begun_immediate if self._is_sqlite else nullcontext
        self._write = GroupCommit(self._transaction).join if self._is_sqlite else self._transaction

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading, without a lock that writers would wait for.

        Each statement sees what is committed as it runs.
        """
        try:
            with stage(Stage.RECORD), self._engine.connect() as connection:
                yield connection
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start.

        As in `read`, database errors become `NoRoom`, `StorageFailed` and `ServerBusy`; broken
        constraints do not.
        """
        try:
            with stage(Stage.RECORD), self._write() as connection:
                yield connection
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            try:
                with connection.begin(), self._begun(connection):
                    yield connection
            except DATABASE_ERRORS as error:
                if is_read_only(error):
                    connection.invalidate()  # A new one may be able to write.
                raise

    def migrate(self) -> None:
        """Bring the tables up to date; processes that start together take turns.

        Raises `StorageFailed` if the database cannot be used, `NoRoom`, `ServerBusy`.
        """
        if self._file is not None:
            keep_private(self._file)
        try:
            with self._transaction() as connection:
                if not is_up_to_date(connection):
                    upgrade(connection)
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise

    def close(self) -> None:
        """Close all connections: idle ones now, the others when they are returned to the pool.

        A thread may still be at work, and connect again: that connection is closed likewise.
        """
        # SQLAlchemy 2.0 returns those in use to the old pool, which would keep them open; the new
        # pool has the listeners that the old one had when it was replaced.
        event.listen(self._engine.pool, "checkin", lambda _, record: record.invalidate())
        self._engine.dispose()

    def checkpoint(self) -> None:
        """Write the write-ahead log back to the database, once all processes have ended.

        Whoever closes a SQLite database last does that; processes that exit do not. If another
        process is still reading, the log stays: nothing is lost.
        """
        if self._file is not None and self._file.exists():
            with suppress(sqlite3.Error), closing(_open_file(self._file)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def copy_to(self, path: Path, *, without: Collection[Table] = ()) -> None:
        """Make `path` a consistent copy of a SQLite database, while others write to it.

        The rows of the tables in `without` are left out.
        Raises `sqlite3.Error` if SQLite refuses; `path` must not be a database in use.
        """
        if self._file is None:
            raise ValueError(f"{self._url} is not a SQLite file")
        keep_private(path)
        with closing(_open_file(self._file)) as source, closing(_open_file(path)) as target:
            source.backup(target)  # One read transaction for all pages; no writer waits for it.
            for table in without:
                target.execute(str(delete(table)))
            target.commit()
            # A single file, without a log beside it; a server switches it back.
            target.execute("PRAGMA journal_mode=DELETE")

    @property
    def _file(self) -> Path | None:
        return Path(self._url.database) if self._is_sqlite and self._url.database else None


def keep_private(file: Path) -> None:
    """Create a database file that only its owner can read, or make an existing one so.

    SQLite gives its -wal and -shm the mode of the database, but only when it creates them. Only the
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


@contextmanager
def _begun_immediate(connection: Connection) -> Iterator[None]:
    """SQLite's write lock, from the start of a transaction to just before its commit.

    A transaction that reads first and writes later fails at once if another has written in
    between; this one waits. If the disk fills up or fails, SQLite rolls back the whole transaction,
    with the savepoints of all who share it, and the driver's commit() says nothing.
    """
    driver = connection.connection
    driver.execute("BEGIN IMMEDIATE")
    yield
    if not driver.in_transaction:
        raise StorageFailed("The database rolled the transaction back.")


def _open_file(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=CHECKPOINT_SECONDS)


def _use_write_ahead_log(cursor: Any, busy_seconds: float) -> None:
    """Switch to WAL, and retry while another process opens the same new database.

    SQLite answers "database is locked" at once here, whatever the busy timeout. If it cannot
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


def _tune_sqlite(engine: Engine, *, synced: bool, busy_seconds: float) -> None:
    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # The driver would delay BEGIN; we send our own.
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(f"PRAGMA busy_timeout={int(busy_seconds * 1000)}")
                _use_write_ahead_log(cursor, busy_seconds)
                cursor.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
                cursor.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()  # The pool forgets it without closing it.
            raise
