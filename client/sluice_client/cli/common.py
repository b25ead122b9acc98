"""What the commands share: options, the client they use, how they end."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from sluice_client.client import Client
from sluice_client.errors import Interrupted, Refused, SluiceError
from sluice_client.options import load_options, settings_file

Command = TypeVar("Command", bound=Callable[..., Any])

PROGRAM = "sluice"

OK, SOME_FAILED, USAGE, UNREACHABLE, INTERRUPTED, MISMATCH = range(6)
"""Exit codes; documented in docs/client.md."""


def server_options(command: Command) -> Command:
    """--server, --config and --json."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object a line."),
        click.option(
            "--config", metavar="FILE", type=click.Path(path_type=Path), help="Settings (TOML)."
        ),
        click.option("--server", metavar="URL", help="Address of the server. [SLUICE_URL]"),
    ):
        command = option(command)
    return command


def transfer_options(command: Command) -> Command:
    """The settings that one may want to change for a single transfer."""
    for option in (
        click.option(
            "--give-up-seconds", metavar="SECONDS", help="End after so long without progress. [900]"
        ),
        click.option("--parallel", metavar="COUNT", help="Most connections at once. [6]"),
    ):
        command = option(command)
    return server_options(command)


@contextmanager
def connected(
    server: str | None = None, config: Path | None = None, **given: str | None
) -> Iterator[Client]:
    """A client with the settings of the command, which a signal ends in good order."""
    file = config or settings_file()
    if config is not None and not config.is_file():
        raise click.UsageError(f"{config} is not a file.")
    options = load_options(os.environ, file, server=server, **given)
    with Client(options=options) as client, _ended_by_signals(client):
        yield client


@contextmanager
def _ended_by_signals(client: Client) -> Iterator[None]:
    """Ctrl-C, a closed terminal and `kill` end the transfers, which can all be resumed."""

    def end(_number: int, _frame: object) -> None:
        client.stop()
        # Raised as well: the main thread may wait for an answer that takes long.
        raise Interrupted("Stopped.")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def json_line(document: dict[str, Any]) -> str:
    """An object on a line of its own; ASCII, so that no terminal setting can break it."""
    return json.dumps(document, ensure_ascii=True)


def print_json(document: dict[str, Any]) -> None:
    """Write an object to standard output."""
    click.echo(json_line(document))


def error_document(error: SluiceError) -> dict[str, Any]:
    """An error as scripts read it."""
    code = error.code if isinstance(error, Refused) else _slug(type(error).__name__)
    return {"code": code, "detail": str(error)}


def _slug(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def this_command() -> str:
    """The command as it was typed, to be typed again."""
    program, *words = sys.argv
    if Path(program).name == "__main__.py":
        return f"{Path(sys.executable).name} -m sluice_client {shlex.join(words)}"
    is_on_path = shutil.which(PROGRAM) == program
    return shlex.join([PROGRAM if is_on_path else program, *words])


def exit_code(errors: list[SluiceError]) -> int:
    """For several outcomes: the one code of all errors, or the general one."""
    codes = {error.exit_code for error in errors}
    if not codes:
        return OK
    return codes.pop() if len(codes) == 1 else SOME_FAILED
