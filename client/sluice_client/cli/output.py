"""What commands print, and how they end: text for people, JSON lines, exit codes."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sluice_client.errors import Refused, SluiceError

PROGRAM = "sluice"

OK, SOME_FAILED, USAGE, UNREACHABLE, INTERRUPTED, MISMATCH = range(6)
"""Exit codes; documented in docs/client.md."""

REPEAT_SECONDS = 60.0
"""The same notice is repeated after this long; six connections often fail at the same moment."""


def say(text: str) -> None:
    """Write a line for people, to standard error."""
    click.echo(text, err=True)


def size_text(count: int) -> str:
    """Bytes for people, in units of 1000 as disks are sold."""
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def plain(text: str) -> str:
    """Text from a server or a file name, without anything that would control the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def json_line(document: dict[str, Any]) -> str:
    """A JSON object on one line; ASCII, so that no terminal setting can break it."""
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
    """The command line as it was typed."""
    program, *words = sys.argv
    if Path(program).name == "__main__.py":
        return f"{Path(sys.executable).name} -m sluice_client {shlex.join(words)}"
    is_on_path = shutil.which(PROGRAM) == program
    return shlex.join([PROGRAM if is_on_path else program, *words])


def exit_code(errors: list[SluiceError]) -> int:
    """The code that all errors share, or the general one."""
    codes = {error.exit_code for error in errors}
    if not codes:
        return OK
    return codes.pop() if len(codes) == 1 else SOME_FAILED


class Notices:
    """Writes notices of waiting as lines for people, or as JSON events."""

    def __init__(self, write: Callable[[str], None], *, as_json: bool = False) -> None:
        self._write = write
        self._as_json = as_json
        self._said: dict[str, tuple[str, float]] = {}

    def __call__(self, text: str, name: str = "") -> None:
        """Say what the transfer `name`, or the command itself, waits for."""
        now = time.monotonic()
        last, said_at = self._said.get(name, ("", now))
        if text == last and now - said_at < REPEAT_SECONDS:
            return
        self._said[name] = (text, now)
        self._write(self._event(text, name) if self._as_json else self._line(text, name))

    def _event(self, text: str, name: str) -> str:
        return json_line({"event": "waiting", "name": name or None, "detail": text})

    def _line(self, text: str, name: str) -> str:
        return plain(f"{name}: {text}" if name else text) + " Ctrl-C stops."
