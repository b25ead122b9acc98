"""Opens the database and migrates its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import local

from sqlalchemy import Connection, event
from sqlalchemy.engine import make_url

from app.db.errors import DATABASE_ERRORS, raise_as_upload_error, wants_new_connection
from app.db.group_commit import GroupCommit
from app.db.postgresql import PostgresqlServer
from app.db.schema import SchemaState, schema_state, upgrade
from app.db.sqlite import BUSY_SECONDS, SqliteFile
from app.ingest.stages import Stage, stage


class Database:
    """Transactions on one database; connects when first used.

    `synced` makes each commit survive a power cut, not only a crash of the process.
    """

    def __init__(
        self, url: str, *, synced: bool, connections: int = 16, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        parsed = make_url(url)
        self._kind: SqliteFile | PostgresqlServer = (
            SqliteFile(parsed, synced=synced, busy_seconds=busy_seconds)
            if parsed.get_backend_name() == "sqlite"
            else PostgresqlServer(parsed)
        )
        self._engine = self._kind.engine(connections)
        self._reading = self._kind.autocommit(self._engine)
        self._write = (
            GroupCommit(self._transaction).join if self._kind.has_one_writer else self._transaction
        )
        self._this_thread = local()

    @property
    def is_remote(self) -> bool:
        """Whether each statement is a round trip to a server."""
        return not self._kind.has_one_writer

    @property
    def file(self) -> SqliteFile | None:
        """The SQLite file; None for a database server."""
        return self._kind if isinstance(self._kind, SqliteFile) else None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading, without a lock that writers would wait for.

        Each statement sees what is committed as it runs: it is a transaction of its own.
        """
        try:
            with stage(Stage.RECORD), self._reading.connect() as connection:
                yield connection
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection whose statements all see the same moment, for reading a lot."""
        try:
            with self._kind.snapshot(self._engine) as connection:
                yield connection
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction. SQLite's holds the only write lock from its start; a server locks rows.

        As in `read`, database errors become `NoRoom`, `StorageFailed` and `ServerBusy`; broken
        constraints do not. Raises `RuntimeError` inside another `write` of this thread: on SQLite
        the second would wait for the first for ever.
        """
        if getattr(self._this_thread, "is_writing", False):
            raise RuntimeError("Database.write() inside another one of this thread")
        self._this_thread.is_writing = True
        try:
            with stage(Stage.RECORD), self._write() as connection:
                yield connection
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise
        finally:
            self._this_thread.is_writing = False

    def one_statement(self) -> AbstractContextManager[Connection]:
        """A transaction of one statement; on a server it needs no round trips to begin and commit.

        Raises as `write`.
        """
        return self.read() if self.is_remote else self.write()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            try:
                with connection.begin(), self._kind.begun(connection):
                    yield connection
                self._kind.require_durable()
            except DATABASE_ERRORS as error:
                if wants_new_connection(error):
                    connection.invalidate()
                raise

    def migrate(self) -> None:
        """Bring the tables up to date; processes that start together take turns.

        Where nothing is to be done it waits for nobody. Raises `StorageFailed` if the database
        cannot be used, or is of a newer version, `NoRoom`, `ServerBusy`.
        """
        self._kind.prepare()
        with self.read() as connection:
            self._kind.require_limits(connection)
            if schema_state(connection) is SchemaState.CURRENT:
                return
        try:
            with self._transaction() as connection:
                self._kind.lock_for_migration(connection)
                if schema_state(connection) is not SchemaState.CURRENT:
                    upgrade(connection)
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise

    def schema_state(self) -> SchemaState:
        """How the tables compare with those that this version needs; creates nothing.

        Raises `StorageFailed` if the database cannot be used, or is of a newer version,
        `ServerBusy`.
        """
        if self.file is not None and not (self.file.path and self.file.path.exists()):
            return SchemaState.MISSING
        with self.read() as connection:
            return schema_state(connection)

    def close(self) -> None:
        """Close all connections: idle ones now, the others when they are returned to the pool.

        A thread may still be at work, and connect again: that connection is closed likewise.
        """
        # SQLAlchemy 2.0 returns those in use to the old pool, which would keep them open; the new
        # pool has the listeners that the old one had when it was replaced.
        event.listen(self._engine.pool, "checkin", lambda _, record: record.invalidate())
        self._engine.dispose()

    def change_mark(self) -> Callable[[], object]:
        """A function whose value changes once anybody has committed something; for one thread.

        It keeps a connection, and takes 10 us. For a server, the value just changes every two
        seconds: a query would cost as much as the work that it saves.
        """
        return self._kind.change_mark(self._engine)

    def checkpoint(self) -> None:
        """Leave the database in one file, if it is a file, once all processes have ended."""
        self._kind.checkpoint()
