"""What commands print, and how they end: text for people, JSON lines, exit codes."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from sluice_client.errors import Refused, SluiceError

PROGRAM = "sluice"

OK, SOME_FAILED, USAGE, UNREACHABLE, INTERRUPTED, MISMATCH = range(6)
"""Exit codes; documented in docs/client.md."""


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
