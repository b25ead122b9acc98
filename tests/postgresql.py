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

from scripts.fleet.postgresql import Postgresql, find_postgresql
from scripts.fleet.programs import Program, as_ordinary_user
from tests.browser.tools import do_without

__all__ = ["ON_BOTH_DATABASES", "Postgresql", "pgbouncer", "postgresql"]

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


@contextmanager
def pgbouncer(server: Postgresql) -> Iterator[str]:
    """A pooler in transaction mode in front of a server: the folder of its socket."""
    user = as_ordinary_user()
    program = shutil.which("pgbouncer", path="/usr/bin:/usr/sbin") or do_without("pgbouncer")
    with tempfile.TemporaryDirectory(prefix="sluice-pgbouncer-") as name:
        folder = Path(name)
        settings = PGBOUNCER.format(server=server.folder, folder=folder, sessions=SERVER_SESSIONS)
        (folder / "pgbouncer.ini").write_text(settings)
        if "user" in user:
            shutil.chown(folder, user["user"])

        def answers() -> bool:
            try:
                psycopg.connect(host=name, user="sluice", dbname="postgres").close()
            except psycopg.OperationalError:
                return False
            return True

        pooler = Program((program, folder / "pgbouncer.ini"), folder / "log", answers, user=user)
        pooler.start()
        try:
            yield name
        finally:
            pooler.stop()
