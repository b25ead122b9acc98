"""A PostgreSQL server of the tests' own, which they may stop, kill and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.browser.tools import do_without
from tests.waiting import wait_until

CONFIGURATION = """
unix_socket_directories = '{folder}'
listen_addresses = ''
max_connections = 100
shared_buffers = 32MB
fsync = {fsync}
synchronous_commit = {fsync}
"""


def folder_of_programs() -> Path:
    """The folder of the newest PostgreSQL; Debian keeps it out of the PATH.

    Without one the test fails or is skipped, as `do_without` says.
    """
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    folders = [*([Path(found).resolve().parent] if found else []), *reversed(debian)]
    for folder in folders:
        if (folder / "postgres").exists():
            return folder
    return do_without("postgresql")


class Postgresql:
    """A cluster in a folder; without `is_safe` a crash of the machine would damage it."""

    def __init__(self, folder: Path, programs: Path, *, is_safe: bool = False) -> None:
        self.folder = folder
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        fsync = "on" if is_safe else "off"
        self._run(
            *("initdb", f"--pgdata={folder}/data", "--username=sluice", "--auth=trust"),
            *("--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"),
        )
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(folder=folder, fsync=fsync))

    def url(self, database: str) -> str:
        """Where a database is, for `SLUICE_DATABASE_URL`."""
        return f"postgresql+psycopg://sluice@/{database}?host={self.folder}"

    def create(self, database: str) -> str:
        """Make an empty database; its URL."""
        self.ask(f'CREATE DATABASE "{database}"')
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
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data"],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_as_ordinary_user(),
            )
        wait_until(self._answers, "PostgreSQL answers")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it as `pg_ctl stop -m fast` does; SIGQUIT and SIGKILL are crashes."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        assert self._process is not None
        return self._process.pid

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
            **_as_ordinary_user(),
        )
        return bytes(done.stdout).decode()


@contextmanager
def postgresql(*, is_safe: bool = False) -> Iterator[Postgresql]:
    """A running server, whose files go with it."""
    programs = folder_of_programs()
    with tempfile.TemporaryDirectory(prefix="sluice-postgresql-") as name:
        folder = Path(name)
        if user := _as_ordinary_user().get("user"):
            shutil.chown(folder, user)
        server = Postgresql(folder, programs, is_safe=is_safe)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _as_ordinary_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_name, "group": nobody.pw_gid, "extra_groups": ()}
