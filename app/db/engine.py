"""Opens the database, and creates or migrates its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from threading import Event, Lock, local

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from app.core.access import FIRST_PROJECT
from app.core.errors import StorageFailed
from app.db import tables
from app.db.errors import DATABASE_ERRORS, raise_as_upload_error, wants_new_connection
from app.db.postgresql import PostgresqlServer
from app.db.sqlite import BUSY_SECONDS, SqliteFile
from app.ingest.stages import Stage


class Database:
    """Transactions on one database; connects on first use.

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
        # SQLAlchemy does not wrap errors of the driver where it sets the isolation level.
        self._errors = (*DATABASE_ERRORS, self._engine.dialect.loaded_dbapi.Error)
        self._write = (
            GroupCommit(self._transaction).join if self._kind.has_one_writer else self._transaction
        )
        self._this_thread = local()

    @property
    def is_remote(self) -> bool:
        """Whether each statement takes a round trip to a server."""
        return not self._kind.has_one_writer

    @property
    def file(self) -> SqliteFile | None:
        """The SQLite file; None for a database server."""
        return self._kind if isinstance(self._kind, SqliteFile) else None

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Yields a connection for reading, without a lock that blocks writers.

        Each statement is a transaction of its own and sees what is committed when it runs.
        """
        try:
            with Stage.RECORD, self._reading.connect() as connection:
                yield connection
        except self._errors as error:
            raise_as_upload_error(error)
            raise

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Yields a connection whose statements all see the same snapshot, for long reads."""
        try:
            with self._kind.snapshot(self._engine) as connection:
                yield connection
        except self._errors as error:
            raise_as_upload_error(error)
            raise

    @contextmanager
    def write(self, *, is_durable: bool = True) -> Iterator[sa.Connection]:
        """Begin a transaction. On SQLite it holds the only write lock; a server locks rows.

        Without `is_durable`, the commit does not wait for a server's disk: only for what would be
        done again if a crash of the server undid it, such as the claim of a job. Later durable
        commits make it durable too.

        As in `read`, database errors become `NoRoom`, `StorageFailed` and `ServerBusy`; violated
        constraints do not. Raises `RuntimeError` inside another `write` of the same thread: on
        SQLite the second would deadlock with the first.
        """
        if getattr(self._this_thread, "is_writing", False):
            raise RuntimeError("Database.write() inside another one of this thread")
        self._this_thread.is_writing = True
        try:
            with Stage.RECORD, self._write() as connection:
                if not is_durable:
                    self._kind.relax_durability(connection)
                yield connection
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise
        finally:
            self._this_thread.is_writing = False

    def one_statement(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction of one statement; on a server it takes no extra round trips.

        Raises like `write`.
        """
        return self.read() if self.is_remote else self.write()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
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
        """Create the tables, or migrate them to this version; concurrent processes take turns.

        Returns at once if the schema is current. Raises `StorageFailed` if the database cannot be
        used or has another version that cannot be migrated, `NoRoom`, `ServerBusy`.
        """
        self._kind.prepare()
        with self.read() as connection:
            self._kind.require_limits(connection)
            if schema_state(connection) is SchemaState.CURRENT:
                return
        try:
            with self._transaction() as connection:
                self._kind.lock_for_migration(connection)
                state = schema_state(connection)
                if state is SchemaState.MISSING:
                    create_tables(connection)
                elif state is SchemaState.OLDER:
                    upgrade(connection)
        except DATABASE_ERRORS as error:
            raise_as_upload_error(error)
            raise

    def schema_state(self) -> SchemaState:
        """Compare the tables with those that this version needs; creates nothing.

        Raises `StorageFailed` if the database cannot be used or has a version that this one cannot
        migrate, `ServerBusy`.
        """
        if self.file is not None and not (self.file.path and self.file.path.exists()):
            return SchemaState.MISSING
        with self.read() as connection:
            return schema_state(connection)

    def close(self) -> None:
        """Close all connections: idle ones now, the others when they return to the pool.

        If a running thread connects again, that connection is also closed on its return.
        """
        # SQLAlchemy 2.0 returns connections in use to the old pool, which would keep them open. The
        # new pool has the listeners that the old pool had when it was replaced.
        sa.event.listen(self._engine.pool, "checkin", lambda _, record: record.invalidate())
        self._engine.dispose()

    def change_mark(self) -> Callable[[], object]:
        """Returns a function whose value changes after any commit; for use by one thread.

        The function keeps a connection open and takes 10 us. For a server, its value simply changes
        every second: a query would cost as much as the work that it saves.
        """
        return self._kind.change_mark(self._engine)

    def checkpoint(self) -> None:
        """Write the log of a SQLite file back into it, once all processes have ended."""
        self._kind.checkpoint()


# ---- schema --------------------------------------------------------------------------------------

# Which tables a database has, and the migrations that bring them up to date.


MIGRATIONS = Path(__file__).parent / "migrations"

_version = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32)),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Where Alembic records the revision of the tables, as it declares the table itself."""


@cache
def newest_revision(migrations: Path = MIGRATIONS) -> str:
    """Returns the revision that this version needs; names of migration files begin with it.

    Cached, and inherited by forks: if the files are updated, a restarted process does not migrate
    the database while other processes still run the old code.
    """
    return max(_revisions(migrations))


@cache
def _revisions(migrations: Path) -> frozenset[str]:
    names = (path.name for path in (migrations / "versions").glob("[0-9]*.py"))
    return frozenset(name.partition("_")[0] for name in names)


class SchemaState(Enum):
    """How the tables of a database compare with those that this version needs."""

    MISSING = "missing"
    OLDER = "older"
    CURRENT = "current"


def schema_state(connection: sa.Connection, migrations: Path = MIGRATIONS) -> SchemaState:
    """The state of the tables by Alembic's record.

    Raises `StorageFailed` for a newer version, and for one from before the oldest migration.
    """
    if not sa.inspect(connection).has_table(_version.name):
        return SchemaState.MISSING
    found = connection.scalar(sa.select(_version.c.version_num))
    known, newest = _revisions(migrations), newest_revision(migrations)
    if found is None:
        return SchemaState.MISSING
    if found in known:
        return SchemaState.CURRENT if found == newest else SchemaState.OLDER
    if found < min(known):
        raise StorageFailed(
            f"The database is too old: its tables have revision {found}, and this version migrates "
            f"those from {min(known)} on. Start the server once with a version in between."
        )
    raise StorageFailed(
        f"The database is of a newer version of Sluice: its tables have revision {found}, and this "
        f"version knows those up to {newest}. Run that version, or restore a backup from before "
        "the update."
    )


def create_tables(connection: sa.Connection) -> None:
    """Create all tables and the first project, in the caller's transaction."""
    tables.projects.metadata.create_all(connection)
    first = {"id": FIRST_PROJECT, "name": "Videos", "created_at": datetime.now(UTC)}
    connection.execute(sa.insert(tables.projects).values(**first, used_bytes=0))
    _version.create(connection, checkfirst=True)
    connection.execute(sa.insert(_version).values(version_num=newest_revision()))


def upgrade(connection: sa.Connection, migrations: Path = MIGRATIONS) -> None:
    """Run the pending migrations in the caller's transaction."""
    # Importing Alembic takes 0.17 CPU s, and only the first process has anything to migrate.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


# ---- group commit --------------------------------------------------------------------------------

# Group commit: concurrent writers share one transaction.
#
# SQLite allows one writer at a time, and each commit waits some milliseconds for the disk. Writers
# of one process therefore share a transaction: each works in a savepoint and hands over to the next
# waiting writer; the last one commits for all.


MOST_IN_A_GROUP = 64
"""Limit on the writers of one transaction, since other processes wait until it ends."""


class _Group:
    """An open transaction and the writers that wait for its end."""

    def __init__(self, begin: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(begin())
        self.size = 0
        self._has_ended = Event()
        self._error: BaseException | None = None

    @contextmanager
    def undone_alone(self) -> Iterator[None]:
        """Run the block in a savepoint: if it raises, rolls back only its own changes.

        If that is impossible, as on a full disk, rolls back the whole transaction, and the commit
        fails. Later blocks raise `StorageFailed`: a savepoint would begin a new transaction that
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
                if isinstance(error, DATABASE_ERRORS):
                    self._error = error  # All writers see the cause, such as a full disk.
            raise
        driver.cursor().execute("RELEASE writer")

    def end(self) -> None:
        """Commit the transaction."""
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
        """Wait until the transaction is committed; raises the error that prevented it."""
        self._has_ended.wait()
        if self._error is not None:
            raise self._error


class GroupCommit:
    """Shares transactions between writers; `begin` opens one that commits when its context ends."""

    def __init__(self, begin: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._begin = begin
        self._working = Lock()
        self._waiting = 0
        self._counting = Lock()
        self._group: _Group | None = None

    @contextmanager
    def join(self) -> Iterator[sa.Connection]:
        """Run the block in a shared transaction, committed after it ends without an error.

        If the block raises, only its changes are rolled back. It also returns only after the
        commit: its error may depend on changes of other writers that are not visible before.
        """
        group = None
        with self._counting:
            self._waiting += 1
        try:
            with self._working:  # One writer at a time.
                with self._counting:
                    self._waiting -= 1
                group = self._group = self._group or _Group(self._begin)
                group.size += 1
                try:
                    with group.undone_alone():
                        yield group.connection
                finally:
                    if not self._waiting or group.size == MOST_IN_A_GROUP:
                        self._group = None
                        group.end()
        finally:
            if group is not None:
                group.wait()
