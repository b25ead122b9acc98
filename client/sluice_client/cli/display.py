"""What a person sees while a transfer runs: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from sluice_client.progress import Phase, Progress

LINE_SECONDS = 10.0
"""How often a log file gets a line about a transfer."""


def say(text: str) -> None:
    """A line for people, on standard error."""
    click.echo(text, err=True)


class Display(Protocol):
    """A `ProgressListener` that lets other lines be written between its own."""

    def __call__(self, progress: Progress) -> None:
        """Show a moment of a transfer."""

    def result(self, text: str) -> None:
        """Write a line to standard output."""

    def note(self, text: str) -> None:
        """Write a line for people."""


@contextmanager
def progress_display() -> Iterator[Display]:
    """What shows transfers for as long as they run."""
    if not sys.stderr.isatty():
        yield PlainLines()
        return
    # Only here, as it takes longer to load than most commands take to run.
    from sluice_client.cli.bars import terminal_bars  # noqa: PLC0415

    with terminal_bars() as bars:
        yield bars


class PlainLines:
    """Where each file stands, every few seconds."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}
        self._notes: dict[str, str] = {}
        self.result = click.echo
        self.note = say

    def __call__(self, progress: Progress) -> None:
        """Write, if it is time or something has happened."""
        now, name = time.monotonic(), progress.name
        if progress.phase is Phase.DONE:
            self._told_at.pop(name, None)
            return
        if progress.phase is Phase.WAITING:
            if progress.note != self._notes.get(name):
                say(f"{name}: {progress.note}")
            self._notes[name] = progress.note
        is_first = name not in self._told_at
        if is_first and progress.resumed and progress.resumed < progress.total:
            say(f"{name}: goes on at {size_text(progress.resumed)}")
        if is_first or now - self._told_at[name] >= LINE_SECONDS:
            self._told_at[name] = now
            if not is_first:
                say(f"{name}: {size_text(progress.done)} of {size_text(progress.total)}")


def size_text(count: int) -> str:
    """Bytes for people, in units of 1000 as disks are sold."""
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def plain(text: str) -> str:
    """Text from a server or a file name without what would command the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
