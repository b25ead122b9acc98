"""What the commands share: options, and text that is safe for a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

LIST_LIMIT = 1000
"""Rows that a list shows by default."""

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
