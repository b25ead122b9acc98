"""What is special about PostgreSQL: a server elsewhere, which may restart, or take over.

Sessions get limits, so that a process paused in a transaction does not block others for long.
How safe a commit is, the operator says there: `synchronous_commit` is left alone.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DisconnectionError

from app.core.errors import StorageFailed

CONNECTIONS = 8
"""Of one process at most: a request has one for milliseconds. PostgreSQL allows 100 by default."""

WAIT_SECONDS = 30
"""How long a thread waits for one of them."""

CONNECT = {
    "connect_timeout": "5",
    "application_name": "sluice",
    # A server that vanished is noticed within half a minute, not after two hours.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""See "Parameter Key Words" of libpq, in seconds; the last in milliseconds."""

SESSION = {
    "lock_timeout": "20s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10s",
    # A session that waits for a lock otherwise outlives its process, until all are taken.
    "client_connection_check_interval": "2s",
}
"""See "Client Connection Defaults" of PostgreSQL; the last is there since version 14."""

MIGRATION = "60s"
"""How long a migration may do something else between two statements."""

LOOK_SECONDS = 2.0
"""How often an idle process checks for work from others."""

MIGRATION_LOCK = 0x736C75696365
"""The key of an advisory lock; "sluice" in ASCII."""


class PostgresqlServer:
    """The database that a URL such as `postgresql+psycopg://user@host/name` leads to."""

    has_one_writer = False

    def __init__(self, url: URL) -> None:
        self._url = url

    def engine(self, connections: int) -> Engine:
        """A pool of so many connections, or of `CONNECTIONS` if that is less."""
        wanted = {**CONNECT, "options": " ".join(f"-c {key}={SESSION[key]}" for key in SESSION)}
        engine = create_engine(
            self._url,
            connect_args={key: wanted[key] for key in wanted if key not in self._url.query},
            pool_size=min(connections, CONNECTIONS),
            max_overflow=0,
            pool_timeout=WAIT_SECONDS,
        )
        event.listen(engine, "connect", _prepare_nothing_behind_pooler)
        event.listen(engine, "connect", _mark_new)
        event.listen(engine, "checkout", _refuse_ended)
        return engine

    def autocommit(self, engine: Engine) -> Engine:
        """The same pool, with a transaction for each statement: no round trips to begin and end."""
        return engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def snapshot(self, engine: Engine) -> Iterator[Connection]:
        """A connection that sees what is committed at its first statement."""
        repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
        with repeatable.connect() as connection, connection.begin():
            yield connection

    def begun(self, _connection: Connection) -> AbstractContextManager[None]:
        """Nothing to do: rows are locked as they are read."""
        return nullcontext()

    def require_durable(self) -> None:
        """Nothing to do: the server answers for its disk."""

    def prepare(self) -> None:
        """Nothing to do: the server has made the database."""

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
        """Wait until no other process migrates, and keep others waiting until the commit.

        Statements may take their time. But if this process vanishes, or the line to it, the server
        ends the transaction a minute later; otherwise no node would ever start again.
        """
        for limit in ("lock_timeout", "statement_timeout"):
            connection.execute(text(f"SET LOCAL {limit} = 0"))
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{MIGRATION}'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})

    def change_mark(self, _engine: Engine) -> Callable[[], object]:
        """One that just changes every so often: asking the server would cost as much as a look."""
        return lambda: time.monotonic() // LOOK_SECONDS

    def checkpoint(self) -> None:
        """Nothing to do: the server does that."""


def _prepare_nothing_behind_pooler(connection: Any, _record: Any) -> None:
    """Turn prepared statements off if a pooler such as PgBouncer stands between.

    It may run each transaction in another session, where others have prepared other statements
    under the same names. A pooler makes up the process id that it reports to its clients. Not
    preparing costs a third more CPU a record from one thread, and nearly twice as much from 16.
    """
    found = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.rollback()
    if found[0] != connection.info.backend_pid:
        connection.prepare_threshold = None


def _mark_new(_connection: Any, record: Any) -> None:
    record.info["is_new"] = True


def _refuse_ended(connection: Any, record: Any, _proxy: Any) -> None:
    """Have the pool replace a connection that the server has ended.

    A server that ends one sends a message or closes it, and nothing was asked: something to read is
    a sign of that. Costs no round trip, as a query would. A server that ends new ones too is
    stopping: that is an error of the database, where the pool would raise one of its own.
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
