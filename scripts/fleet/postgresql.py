"""A PostgreSQL server in a folder, with a cluster of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from scripts.fleet.programs import Program, as_ordinary_user

# Each process of a node has up to 8 connections.
CONFIGURATION = """
unix_socket_directories = '{folder}'
listen_addresses = ''
max_connections = 500
shared_buffers = 32MB
fsync = {fsync}
"""

SOCKET = ".s.PGSQL.5432"
"""The file that a client connects to, in the folder of the server."""


def find_postgresql() -> Path | None:
    """The folder of the newest PostgreSQL's programs; Debian keeps it out of the PATH."""
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    folders = [*([Path(found).resolve().parent] if found else []), *reversed(debian)]
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


class Postgresql:
    """A server on a Unix socket in its folder, whose path must be short: 90 bytes.

    Without `is_safe` a crash of the machine would damage the cluster; a crash of the server loses
    nothing. If we are root, it runs as `nobody`, who then owns the folder.
    """

    def __init__(self, folder: Path, programs: Path, *, is_safe: bool = False) -> None:
        self.folder = folder
        self._programs = programs
        self.program = Program(
            (programs / "postgres", "-D", folder / "data"),
            folder / "log",
            self._answers,
            user=as_ordinary_user(),
            stop_signal=signal.SIGINT,  # After SIGTERM it would wait for its clients.
        )
        if user := as_ordinary_user().get("user"):
            shutil.chown(folder, user)
        self._run(
            *("initdb", f"--pgdata={folder}/data", "--username=sluice", "--auth=trust"),
            *("--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"),
        )
        fsync = "on" if is_safe else "off"
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(folder=folder, fsync=fsync))

    def url(self, database: str) -> str:
        """Where a database is, for `SLUICE_DATABASE_URL`."""
        return f"postgresql+psycopg://sluice@/{quote(database)}?host={self.folder}"

    def create(self, database: str, *, like: str = "template1") -> str:
        """Make a database as another one is that nobody uses; its URL."""
        self.ask(f'CREATE DATABASE "{database}" TEMPLATE "{like}"')
        return self.url(database)

    def ask(self, statement: str, *, database: str = "postgres") -> str:
        """What a statement returns, as psql writes it."""
        options = ("--no-psqlrc", "--tuples-only", "--no-align", "--quiet", "-v", "ON_ERROR_STOP=1")
        return self._run(
            *("psql", *options, f"--host={self.folder}", "--username=sluice"),
            *(f"--dbname={database}", f"--command={statement}"),
        ).strip()

    def start(self) -> None:
        """Start it, or start it again."""
        self.program.start()

    def stop(self, how: signal.Signals | None = None) -> None:
        """End it as `pg_ctl stop -m fast` does; SIGQUIT is a crash."""
        self.program.stop(how)

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        return self.program.pid

    def _answers(self) -> bool:
        with suppress(subprocess.CalledProcessError):
            return self.ask("SELECT 1") == "1"
        return False

    def _run(self, program: str, *options: str) -> str:
        done = subprocess.run(
            [self._programs / program, *options],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **as_ordinary_user(),
        )
        return bytes(done.stdout).decode()
