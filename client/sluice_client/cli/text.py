"""Text for a terminal."""

from __future__ import annotations

import click


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
