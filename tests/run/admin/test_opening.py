"""Which library a command works on, and what it says if there is none or something fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import text

from app.db import engine
from app.db.engine import Database
from app.run.admin.commands import operator_app
from app.run.build import build_services
from app.settings import from_env
from tests.live_server import ROOT
from tests.long_tests import long
from tests.records.making import new_sqlite

COMMANDS = [
    ("videos", "list"),
    ("videos", "show", "0" * 32),
    ("videos", "delete", "0" * 32),
    ("uploads", "list"),
    ("uploads", "show", "0" * 32),
    ("uploads", "expire", "0" * 32),
    ("users", "list"),
    ("users", "add", "a@example.org", "--admin"),
    ("users", "reset", "a@example.org"),
    ("users", "email", "a@example.org", "b@example.org"),
    ("users", "block", "a@example.org"),
    ("users", "unblock", "a@example.org"),
    ("users", "remove-codes", "a@example.org"),
    ("projects", "list"),
    ("projects", "add", "Films"),
    ("projects", "set", "local", "--quota", "5GB"),
    ("projects", "recount"),
    ("keys", "list"),
    ("keys", "add", "--role", "viewer", "--name", "x"),
    ("keys", "revoke", "x"),
    ("jobs", "list"),
    ("jobs", "failed"),
    ("jobs", "retry"),
    ("jobs", "cancel", "0" * 32, "pictures"),
    ("jobs", "again", "--all"),
    ("verify",),
    ("backup", "copy"),
    ("sweep",),
    ("database", "copy", "postgresql://localhost/x"),
    ("storage", "reconcile"),
    ("storage", "adopt"),
    ("renew-secret",),
    ("disk-bench",),
]

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder of its own, with these settings alone."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.upper().startswith("SLUICE")]:
        monkeypatch.delenv(name)

    def run_in_folder(*arguments: str, **settings: str) -> Result:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        return operator_app().test_cli_runner().invoke(args=arguments)

    return run_in_folder


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """The database of an empty library in ./data, which a server has made."""
    file = tmp_path / "data" / "sluice.db"
    file.parent.mkdir(mode=0o700)
    new_sqlite(file).close()
    return file


def error_of(result: Result) -> str:
    """The one line of a command that failed as expected."""
    assert result.exit_code in {1, 2}, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.strip()


def test_all_commands_are_listed() -> None:
    def names(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
        for name, command in group.commands.items():
            below = getattr(command, "commands", None)
            yield from names(command, *path, name) if below else [(*path, name)]

    tested = {command[:2] if len(command) > 1 else command for command in COMMANDS}
    tested = {command if command[0] != "backup" else ("backup",) for command in tested}
    others = {("version",), ("storage", "check"), ("storage", "cors")}
    assert tested | others == set(names(operator_app().cli))


@pytest.mark.parametrize("command", COMMANDS, ids="_".join)
def test_a_command_without_a_library_says_where_it_looked_and_makes_nothing(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    message = error_of(run(*command))
    assert f"no library in {tmp_path}/data (SLUICE_DATA_DIR is not set" in message
    assert list(tmp_path.iterdir()) == []


def test_the_setting_that_led_to_the_wrong_folder_is_named(run: Run, tmp_path: Path) -> None:
    message = error_of(run("videos", "list", SLUICE_DATA_DIR=str(tmp_path / "videos")))
    assert f"no library in {tmp_path}/videos (from SLUICE_DATA_DIR)" in message


def test_a_misspelt_setting_is_reported_by_commands_too(run: Run) -> None:
    result = run("videos", "list", SLUICE_DATADIR="/srv")
    warning, _ = result.stderr.splitlines()
    assert warning.endswith("did you mean SLUICE_DATA_DIR?")


def test_an_empty_file_is_no_library(run: Run, library: Path) -> None:
    library.write_bytes(b"")
    assert "There is no library" in error_of(run("videos", "list"))


@pytest.mark.parametrize("command", COMMANDS, ids="_".join)
def test_a_setting_that_cannot_be_used_is_one_line(run: Run, command: tuple[str, ...]) -> None:
    assert "SLUICE_PORT='x'" in error_of(run(*command, SLUICE_PORT="x"))


def test_help_needs_neither_settings_nor_a_library(run: Run, tmp_path: Path) -> None:
    result = run("videos", "list", "--help", SLUICE_PORT="x")
    assert (result.exit_code, "newest first" in result.stdout) == (0, True)
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_a_newer_version_is_one_line(run: Run, library: Path) -> None:
    set_revision(library, "9999")
    message = error_of(run("videos", "list"))
    assert "of a newer version of Sluice: its tables have revision 9999" in message


def test_a_database_from_before_the_migrations_is_one_line(run: Run, library: Path) -> None:
    set_revision(library, "0001")
    assert "too old: its tables have revision 0001" in error_of(run("videos", "list"))


@pytest.mark.usefixtures("library")
def test_a_library_of_an_older_version_waits_for_its_server(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "newest_revision", lambda _migrations: "9000")
    assert "Start the server of this version" in error_of(run("videos", "list"))


@pytest.mark.parametrize("command", COMMANDS, ids="_".join)
def test_records_that_were_moved_to_another_database_are_refused(
    run: Run, tmp_path: Path, library: Path, command: tuple[str, ...]
) -> None:
    services = build_services(from_env({"SLUICE_DATA_DIR": str(library.parent)}))
    with closing(services.database):
        services.storage_identity.leave()
    result = run(*command)
    if command == ("storage", "adopt"):
        assert result.exit_code == 0, result.stderr
        assert run("videos", "list").exit_code == 0
    else:
        assert "moved to another database by `database copy`" in error_of(result)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_broken_database_is_one_line(run: Run, library: Path, content: bytes) -> None:
    library.write_bytes(content)
    assert "The database failed" in error_of(run("videos", "list"))


def test_a_database_that_was_cut_is_one_line(run: Run, library: Path) -> None:
    os.truncate(library, library.stat().st_size // 2)
    result = run("verify")
    assert "The database" in error_of(result)


def test_a_database_server_that_is_away_is_one_line(run: Run) -> None:
    url = "postgresql://sluice:geheim@127.0.0.1:1/sluice"
    message = error_of(run("videos", "list", SLUICE_DATABASE_URL=url))
    assert "The database cannot be reached." in message
    assert "geheim" not in message


@pytest.mark.parametrize("user", [0, 4711])
def test_another_users_library_is_not_opened(
    run: Run, library: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files away")
    for path in (library, library.parent):
        os.chown(path, 4712, -1)
    if user:
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(os, "access", lambda *_: False)
    message = error_of(run("videos", "list"))
    assert "belongs to user 4712. Run the command as the server's user" in message
    assert sorted(path.name for path in library.parent.iterdir()) == ["sluice.db"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("videos", "list", "--limit", "-1"),
        ("videos", "list", "--limit", "0"),
        ("videos", "list", "--limit", "1e20"),
        ("uploads", "list", "--limit", "1" * 30),
        ("jobs", "list", "--limit", "-1"),
        ("videos", "show", "\udcff"),
        ("videos", "delete", "0" * 32, "\udcff"),
        ("users", "add", "\udcff@example.org"),
        ("projects", "add", "\udcff"),
        ("projects", "set", "local", "--quota", "1" * 40),
        ("projects", "set", "local", "--quota", "9999999999PB"),
        ("projects", "set", "local", "--quota", "-1"),
        ("projects", "set", "local", "--keep-videos", "nan"),
        ("projects", "set", "local", "--keep-videos", "1e300"),
        ("projects", "set", "local", "--keep-videos", "inf"),
        ("projects", "set", "local", "--keep-videos", "soon"),
        ("projects", "set", "nowhere", "--quota", "5GB"),
        ("keys", "add", "--role", "viewer", "--name", ""),
        ("keys", "add", "--role", "viewer", "--name", "x" * 5000),
        ("keys", "add", "--role", "viewer", "--name", "x", "--expires", "9" * 400),
        ("keys", "add", "--role", "viewer", "--name", "x", "--expires", "1e300"),
        ("keys", "add", "--role", "viewer", "--name", "x", "--expires", "nonsense"),
        ("jobs", "cancel", "x", "y"),
        ("jobs", "again", "\0"),
        ("users", "reset", "nobody@example.org"),
        ("disk-bench", "--bytes", "1" * 30),
        ("disk-bench", "--seconds", "nan", "--bytes", "1024"),
        ("disk-bench", "--seconds", "1e300", "--bytes", "1024"),
        ("backup", "/proc/nowhere"),
        ("backup", "/dev/null/x"),
        ("database", "copy", ""),
        ("database", "copy", "nonsense"),
        ("database", "copy", "postgresql://["),
        ("database", "copy", "postgresql://host:port/name"),
        ("database", "copy", "postgresql://host:/name"),
        ("database", "copy", "postgresql://127.0.0.1:1/name?nonsense=1"),
        ("database", "copy", "postgresql://127.0.0.1:1/na\0me"),
        ("database", "copy", "postgresql://127.0.0.1:1/name?connect_timeout=soon"),
        ("database", "copy", "postgresql://127.0.0.1:1/name?port=x"),
    ],
)
def test_an_argument_that_cannot_be_used_is_no_traceback(
    run: Run, library: Path, arguments: tuple[str, ...]
) -> None:
    assert library.exists()
    result = run(*arguments)
    assert result.exit_code in {1, 2}, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Error: " in result.stderr
    assert result.stderr.isascii() or result.stderr.isprintable()


def flask(
    *arguments: str | bytes, folder: Path, **options: Any
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    return subprocess.run(
        [sys.executable, "-m", "flask", "--app", str(ROOT / "wsgi.py"), *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        **options,
    )


@pytest.mark.parametrize("arguments", [("version",), ("--help",), *long([(("videos", "--help"),)])])
def test_output_to_a_full_disk_fails_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as full:
        result = flask(*arguments, folder=tmp_path, stdout=full)
    assert result.returncode == 1
    assert result.stderr == "Error: the output: No space left on device\n"


def test_a_pipe_that_is_closed_is_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        result = flask("--help", folder=tmp_path, stdout=pipe)
    assert (result.returncode, result.stderr) == (1, "")


def test_the_real_command_says_the_same_from_another_folder(tmp_path: Path) -> None:
    result = flask("videos", "show", b"\xff", folder=tmp_path, stdout=subprocess.PIPE)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (
        2,
        "Error: '\\udcff' is not valid UTF-8.",
    )
    listed = flask("--help", folder=tmp_path, stdout=subprocess.PIPE).stdout
    commands = re.findall(r"^  ([a-z-]+)  ", listed.partition("Commands:")[2], re.MULTILINE)
    assert {"videos", "backup", "version"} <= set(commands)
    assert not {"run", "shell", "routes"} & set(commands)
    assert list(tmp_path.iterdir()) == []


def set_revision(file: Path, revision: str) -> None:
    with closing(Database(f"sqlite:///{file}", synced=False)) as database:
        with database.write() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :r"), {"r": revision})
        database.checkpoint()
