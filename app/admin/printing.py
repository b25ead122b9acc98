"""What the commands share: options, errors in one line, text that is safe for a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import click
from flask.cli import run_command

from app.domain.errors import UploadError
from app.http.context import current_services
from app.uploads.storage_identity import WrongStorage

LIST_LIMIT = 1000
"""Rows that a list shows by default."""

P = ParamSpec("P")

as_json = click.option("--json", "is_json", is_flag=True, help="For programs.")
limited = click.option("--limit", default=LIST_LIMIT, show_default=True, help="Most rows.")


def is_command() -> bool:
    """Whether `flask` runs in this process, and not to serve: `flask run` is a server."""
    context = click.get_current_context(silent=True)
    return context is not None and context.command is not run_command


def explained(command: Callable[P, None]) -> Callable[P, None]:
    """Errors of the domain as one line and exit status 1."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except UploadError as error:
            raise click.ClickException(str(error)) from error

    return run


def with_files(command: Callable[P, None]) -> Callable[P, None]:
    """As `explained`, and refused unless the settings lead to the files that the records describe.

    With other storage, the command would take every file for lost.
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            current_services().storage_identity.require()
        except WrongStorage as error:
            raise click.ClickException(str(error)) from error
        command(*args, **kwargs)

    return explained(run)


def print_rows(
    rows: list[dict[str, Any]], line: Callable[[dict[str, Any]], str], *, is_json: bool
) -> None:
    """All rows as JSON, or each as what `line` makes of it."""
    if is_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(printable(line(row)))


def print_one(row: dict[str, Any], *, is_json: bool) -> None:
    """One row as JSON, or a line for each of its values."""
    if is_json:
        click.echo(json.dumps(row, indent=2))
        return
    width = max(8, *map(len, row)) + 2
    for name, value in row.items():
        click.echo(f"{name:<{width}}{printable(str(value))}")


def printable(text: str) -> str:
    """A client's text without control characters for the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
