"""The PostgreSQL backend: a remote server, which may restart or fail over.

Sessions get limits, so that a process paused in a transaction does not block others for long.
The operator configures the durability of commits there: `synchronous_commit` is changed only for
commits that need none.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import PoolResetState

from app.core.errors import StorageFailed

CONNECTIONS = 8
"""Most per process: a request uses one for milliseconds. PostgreSQL allows 100 by default."""

WAIT_SECONDS = 30
"""How long a thread waits for a free connection."""

CONNECT = {
    "connect_timeout": "5",
    "application_name": "sluice",
    # Detect a lost server within half a minute instead of two hours.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""See "Parameter Key Words" of libpq; in seconds, the last in milliseconds."""

SESSION = {
    "lock_timeout": "20s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10s",
    # Otherwise sessions that wait for a lock outlive their process, until none are left.
    "client_connection_check_interval": "2s",
}
"""See "Client Connection Defaults" of PostgreSQL; the last requires version 14."""

MIGRATION, LONG_READ = "60s", "1h"
"""How long a migration or a snapshot may be idle between two statements. A snapshot locks no rows,
and is read page by page for work that takes its time, such as asking a bucket about each object."""

LOOK_SECONDS = 1.0
"""How often an idle process checks for work from other processes."""

MIGRATION_LOCK = 0x736C75696365
"""Key of the advisory lock for migrations: "sluice" in ASCII."""


class PostgresqlServer:
    """The database at a URL such as `postgresql+psycopg://user@host/name`."""

    has_one_writer = False

    def __init__(self, url: URL) -> None:
        self._url = url

    def engine(self, connections: int) -> Engine:
        """Returns a pool of at most `connections` connections, and at most `CONNECTIONS`."""
        wanted = {**CONNECT, "options": " ".join(f"-c {key}={SESSION[key]}" for key in SESSION)}
        engine = create_engine(
            self._url,
            connect_args={key: wanted[key] for key in wanted if key not in self._url.query},
            pool_size=min(connections, CONNECTIONS),
            max_overflow=0,
            pool_timeout=WAIT_SECONDS,
            pool_reset_on_return=None,  # `_roll_back` does it.
        )
        event.listen(engine, "connect", _prepare_nothing_behind_pooler)
        event.listen(engine, "connect", _mark_new)
        event.listen(engine, "checkout", _refuse_ended)
        event.listen(engine, "reset", _roll_back)
        return engine

    def autocommit(self, engine: Engine) -> Engine:
        """Returns the same pool with a transaction per statement: saves two round trips each."""
        return engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def snapshot(self, engine: Engine) -> Iterator[Connection]:
        """Yields a connection that sees what was committed at its first statement."""
        repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
        with repeatable.connect() as connection, connection.begin():
            limit = "idle_in_transaction_session_timeout"
            connection.execute(text(f"SET LOCAL {limit} = '{LONG_READ}'"))
            yield connection

    def begun(self, _connection: Connection) -> AbstractContextManager[None]:
        """Nothing to do: rows are locked as they are read."""
        return nullcontext()

    def relax_durability(self, connection: Connection) -> None:
        """Let the transaction's commit return before it is on a disk: see `synchronous_commit`."""
        connection.execute(text("SET LOCAL synchronous_commit = off"))

    def require_durable(self) -> None:
        """Nothing to do: the server is responsible for its disk."""

    def prepare(self) -> None:
        """Nothing to do: the database exists on the server already."""

    def require_limits(self, connection: Connection) -> None:
        """Raise `StorageFailed` if `SESSION` was not applied: poolers can ignore `options`."""
        if "options" in self._url.query:  # They replace `SESSION`.
            return
        found = connection.execute(text("SELECT name FROM pg_settings WHERE setting = '0'"))
        if missing := sorted(SESSION.keys() & found.scalars()):
            raise StorageFailed(
                f"The database's sessions have no {', '.join(missing)}: a pooler ignores what "
                "Sluice asks for. Set them with ALTER ROLE, as docs/operations.md says."
            )

    def lock_for_migration(self, connection: Connection) -> None:
        """Take the migration lock until the commit; waits while another process holds it.

        Statements have no time limit. But if this process or its connection is lost, the server
        ends the transaction a minute later; otherwise no node could ever start again.
        """
        for limit in ("lock_timeout", "statement_timeout"):
            connection.execute(text(f"SET LOCAL {limit} = 0"))
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{MIGRATION}'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})

    def change_mark(self, _engine: Engine) -> Callable[[], object]:
        """Returns a mark that changes at intervals: a query would cost as much as the work."""
        return lambda: time.monotonic() // LOOK_SECONDS

    def checkpoint(self) -> None:
        """Nothing to do: the server checkpoints its own log."""


def _prepare_nothing_behind_pooler(connection: Any, _record: Any) -> None:
    """Disable prepared statements behind a pooler such as PgBouncer.

    A pooler may run each transaction in another session, where other clients have prepared other
    statements under the same names. It is detected by the process id, which a pooler makes up.
    docs/operations.md says what that costs.
    """
    found = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.rollback()
    if found[0] != connection.info.backend_pid:
        connection.prepare_threshold = None


def _mark_new(_connection: Any, record: Any) -> None:
    record.info["is_new"] = True


def _refuse_ended(connection: Any, record: Any, _proxy: Any) -> None:
    """Have the pool replace a connection that the server has ended.

    To end a connection, a server sends a message or closes it; since no query is pending, any
    readable data reveals that. Unlike a query, the check costs no round trip. A server that also
    ends new connections is stopping: raises a database error where the pool would raise its own.
    """
    is_new, is_ended = record.info.pop("is_new", False), connection.closed
    if not is_ended:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        is_ended = bool(poll.poll(0))
    if is_ended and is_new:
        from psycopg import OperationalError  # noqa: PLC0415 - only with PostgreSQL

        raise OperationalError("the server has ended a new connection")
    if is_ended:
        raise DisconnectionError("the server has ended the connection")


def _roll_back(connection: Any, record: Any, state: PoolResetState) -> None:
    """Roll back on the return to the pool; drop a connection that was lost.

    The pool itself would log a lost connection as an error, with a traceback.
    """
    from psycopg import OperationalError  # noqa: PLC0415 - only with PostgreSQL

    try:
        if not state.transaction_was_reset:
            connection.rollback()
    except OperationalError:
        record.invalidate()
