"""A PostgreSQL server of the tests' own, which they may stop, kill and start again.

And PgBouncer in front of one, as many installations have it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from app.db.postgresql import SESSION
from scripts.fleet.postgresql import Postgresql, find_postgresql
from scripts.fleet.programs import Program, as_ordinary_user
from tests.browser.tools import do_without

__all__ = [
    "ON_BOTH_DATABASES",
    "PgBouncer",
    "Postgresql",
    "find_pgbouncer",
    "pgbouncer",
    "postgresql",
    "set_limits",
]

SERVER_SESSIONS = 2
"""So few that clients share them."""

PGBOUNCER = """
[databases]
* = host={server} user=sluice pool_size={sessions}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 5432
auth_type = any
pool_mode = transaction
ignore_startup_parameters = options
max_client_conn = 500
server_login_retry = 1
"""

ON_BOTH_DATABASES = pytest.mark.parametrize("database", ["in_file", "on_server"], indirect=True)
"""For tests of what databases do differently, such as races: `make test` runs them on both."""


@contextmanager
def postgresql(*, is_safe: bool = False) -> Iterator[Postgresql]:
    """A running server, whose files go with it."""
    programs = find_postgresql() or do_without("postgresql")
    with tempfile.TemporaryDirectory(prefix="sluice-postgresql-") as name:
        server = Postgresql(Path(name), programs, is_safe=is_safe)
        server.start()
        try:
            yield server
        finally:
            server.stop()


class PgBouncer:
    """A pooler in transaction mode in front of a server, on a Unix socket in its folder."""

    def __init__(self, folder: Path, program: str, server: Postgresql, *, sessions: int) -> None:
        self.folder = folder
        self._server = server
        user = as_ordinary_user()
        if "user" in user:
            shutil.chown(folder, user["user"])
        settings = PGBOUNCER.format(server=server.folder, folder=folder, sessions=sessions)
        (folder / "pgbouncer.ini").write_text(settings)
        command = (program, folder / "pgbouncer.ini")
        self.program = Program(command, folder / "log", self._answers, user=user)

    def pooled(self, url: str) -> str:
        """The URL of the same database through the pooler."""
        return url.replace(str(self._server.folder), str(self.folder))

    def _answers(self) -> bool:
        try:
            psycopg.connect(host=str(self.folder), user="sluice", dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True


def find_pgbouncer() -> str | None:
    """Its path; None where it is not installed."""
    return shutil.which("pgbouncer", path="/usr/bin:/usr/sbin")


@contextmanager
def pgbouncer(server: Postgresql, *, sessions: int = SERVER_SESSIONS) -> Iterator[PgBouncer]:
    """A running pooler; `sessions` is how many it has for each database."""
    program = find_pgbouncer() or do_without("pgbouncer")
    with tempfile.TemporaryDirectory(prefix="sluice-pgbouncer-") as name:
        pooler = PgBouncer(Path(name), program, server, sessions=sessions)
        pooler.program.start()
        try:
            yield pooler
        finally:
            pooler.program.stop()


def set_limits(server: Postgresql) -> None:
    """Give all sessions the limits that a pooler does not pass on, as docs/operations.md says."""
    for name, value in SESSION.items():
        server.ask(f"ALTER ROLE sluice SET {name} = '{value}'")
