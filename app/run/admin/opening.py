"""Shared by all commands: opening the library, and errors in one line.

Only a server's start creates a library. Otherwise a command that found none would create an empty
one, and a backup of that would replace a good one.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec

import click
from flask import Flask, current_app
from flask.cli import AppGroup, routes_command, run_command, shell_command, with_appcontext

from app.core.access import EVERYTHING, Caller, CallerKind, Scope
from app.core.errors import UploadError
from app.db.context import RequestContext
from app.db.engine import SchemaState
from app.db.errors import operator_message
from app.http import context
from app.http.context import current_services
from app.http.services import Services
from app.run.build import build_services
from app.settings import PREFIX, Settings, SettingsError, from_env, without_effect
from app.storage.data_folder import FolderLocked, lock_data_folder, shown, user_name
from app.uploads.storage_identity import WrongStorage

FLASKS_OWN = (run_command, shell_command, routes_command)

OPERATOR = Caller(kind=CallerKind.LOCAL, name="operator")

_OPENED = "sluice.library"
"""Key in click's context: the library was checked."""

P = ParamSpec("P")


def is_command() -> bool:
    """Whether this process is `flask` running one of our commands, or listing them."""
    running = click.get_current_context(silent=True)
    return running is not None and running.command not in FLASKS_OWN


def is_server() -> bool:
    """Whether this process is a server: under gunicorn, or with `flask run`."""
    running = click.get_current_context(silent=True)
    return running is None or running.command is run_command


def command_app(*commands: click.Command) -> Flask:
    """An application that has only these commands, and opens nothing before one runs."""
    app = Flask("app", static_folder=None)
    for command in commands:
        app.cli.add_command(command)
    for command in FLASKS_OWN:  # They serve, or help to develop Flask applications.
        command.hidden = True
    return app


def end_in_one_line() -> None:
    """Print errors outside of commands in one line, too, such as `--help` on a full disk.

    Characters that the terminal's encoding lacks are shown as escapes.
    """
    sys.excepthook = _show
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, OSError):
        _drop_output()
        sys.stderr.write(f"Error: {_system_error(error)}\n")
    else:
        sys.__excepthook__(kind, error, traceback)


def _drop_output() -> None:
    """Discard unwritten output, which would fail again when Python exits, with status 120.

    See the "Note on SIGPIPE" in the library reference.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _system_error(error: OSError) -> str:
    place = "the output" if error.filename is None else ascii(os.fsdecode(error.filename))
    return f"{place}: {error.strerror}"


class OperatorCommand(click.Command):
    """A command whose errors are one line, with exit status 1, or 2 for wrong arguments."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        for value in ctx.params.values():
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and text != text.encode(errors="replace").decode():
                    raise click.UsageError(f"{text!a} is not valid UTF-8.")
        with one_line_errors():
            return super().invoke(ctx)


class OperatorGroup(AppGroup):
    """A group of operator commands, each with the application context."""

    command_class = OperatorCommand


def operator_command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Decorator that makes a function an operator command outside any group."""

    def decorate(function: Callable[..., None]) -> click.Command:
        return click.command(name, cls=OperatorCommand)(with_appcontext(function))

    return decorate


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Convert expected errors to those that click prints in one line."""
    try:
        yield
    except (SettingsError, FolderLocked, WrongStorage) as error:
        raise click.ClickException(str(error)) from error
    except UploadError as error:
        raise click.ClickException(operator_message(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # click exits silently.
            raise
        _drop_output()
        raise click.ClickException(_system_error(error)) from error


def services() -> Services:
    """The services for the settings; opens neither database nor files.

    Connections to the database are closed when the command ends.
    """
    if not context.has_services(current_app):
        for line in without_effect(os.environ):
            click.echo(f"warning: {line}", err=True)
        found = build_services(from_env(os.environ))
        context.init_app(current_app, found)
        click.get_current_context().find_root().call_on_close(found.database.close)
    return current_services()


def open_library(*, may_be_left: bool = False) -> Services:
    """The services of an existing library; raises `click.ClickException` if there is none.

    Raises `WrongStorage` if its records were moved to another database, unless `may_be_left`.
    """
    found, running = services(), click.get_current_context()
    if _OPENED in running.meta:
        return found
    _require_own(found.settings)
    state, place = found.database.schema_state(), _place(found.settings)
    if state is SchemaState.MISSING:
        raise click.ClickException(
            f"There is no library in {place}. Run the command in the server's folder, with its "
            f"{PREFIX} variables, as its user. Only the start of a server makes a library."
        )
    if state is SchemaState.OLDER:
        raise click.ClickException(
            f"The library in {place} is of an older version of Sluice. Start the server of this "
            "version: it brings the database up to date."
        )
    if not may_be_left:
        found.storage_identity.require_records()
    running.meta[_OPENED] = True
    return found


def as_operator(scope: Scope = EVERYTHING) -> RequestContext:
    """The context of a command; the audit log shows its actor as the operator."""
    return open_library().context.acting(OPERATOR, scope=scope)


def with_files(command: Callable[P, None]) -> Callable[P, None]:
    """Decorator that refuses to run unless the settings name the storage of the records' files.

    With other storage, the command would treat every file as lost.
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        open_library().storage_identity.require()
        command(*args, **kwargs)

    return run


def _place(settings: Settings) -> str:
    """The expected location of the library, and the setting that defines it."""
    if settings.database_url:
        return f"the database of {PREFIX}DATABASE_URL"
    variable = f"{PREFIX}DATA_DIR"
    if variable in os.environ:
        return f"{shown(settings.data_dir)} (from {variable})"
    return (
        f"{shown(settings.data_dir)} ({variable} is not set: it is ./data, in the folder where the "
        "command runs)"
    )


def _require_own(settings: Settings) -> None:
    """Refuse another user's library: its server could not read files that this user adds."""
    file = settings.data_dir / "sluice.db"
    for path in (settings.data_dir, file):
        try:
            found = path.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise _closed(path, f": {error.strerror}") from error
        is_others = found.st_uid not in {os.geteuid(), 0}
        if is_others and (os.geteuid() == 0 or not os.access(path, os.R_OK | os.W_OK)):
            raise _closed(path, f" belongs to {user_name(found.st_uid)}")
        if stat.S_ISREG(found.st_mode) and not os.access(path, os.R_OK | os.W_OK):
            raise _closed(path, f" belongs to {user_name(found.st_uid)}")


def _closed(path: Path, reason: str) -> click.ClickException:
    return click.ClickException(
        f"{shown(path)}{reason}. Run the command as the server's user, as `sluice-admin` does."
    )


# ---- exclusion -----------------------------------------------------------------------------------

# For commands that must not run at the same time as a server: each would undo the other's work.


def require_no_server(services: Services) -> None:
    """Lock the data folder, so that no server can start in it until the process ends.

    Raises `click.ClickException` if a server runs in it, or another node shares the records.
    """
    try:
        lock_data_folder(services.settings.data_dir)
    except FolderLocked as error:
        raise click.ClickException(str(error)) from error
    if services.nodes is not None and services.nodes.count_live():
        raise click.ClickException("Nodes are running, or have ended seconds ago: stop them.")


# ---- printing ------------------------------------------------------------------------------------

# Shared by the commands: options, and text that is safe for a terminal.


LIST_LIMIT = 1000
"""Default number of rows in a list."""

as_json = click.option("--json", "is_json", is_flag=True, help="For programs.")
limited = click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000_000),
    default=LIST_LIMIT,
    show_default=True,
    help="Most rows.",
)


def print_rows(
    rows: list[dict[str, Any]], line: Callable[[dict[str, Any]], str], *, is_json: bool
) -> None:
    """Print all rows as JSON, or each as a line formatted by `line`."""
    if is_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(printable(line(row)))


def print_one(row: dict[str, Any], *, is_json: bool) -> None:
    """Print one row as JSON, or a line for each of its values."""
    if is_json:
        click.echo(json.dumps(row, indent=2))
        return
    width = max(8, *map(len, row)) + 2
    for name, value in row.items():
        click.echo(f"{name:<{width}}{printable(str(value))}")


def printable(text: str) -> str:
    """A client's text without terminal control characters."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
