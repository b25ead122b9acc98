"""What a person sees while a transfer runs: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

from app.client.progress import Phase, Progress, ProgressListener

LINE_SECONDS = 10.0
"""How often a log file gets a line about a transfer."""

NAME_CHARACTERS = 32


def say(text: str) -> None:
    """A line for people, on standard error."""
    click.echo(text, err=True)


@contextmanager
def progress_display() -> Iterator[ProgressListener]:
    """A listener for as long as transfers run."""
    if not sys.stderr.isatty():
        yield PlainLines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        yield TerminalBars(bars)


class TerminalBars:
    """A bar a file; it goes when the file is done."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: Progress) -> None:
        """Draw."""
        if progress.phase is Phase.DONE:
            task = self._tasks.pop(progress.name, None)
            if task is not None:
                self._bars.remove_task(task)
            return
        if progress.name not in self._tasks:
            self._tasks[progress.name] = self._bars.add_task(
                escape(shortened(progress.name)), total=progress.total, note=""
            )
        self._bars.update(
            self._tasks[progress.name], completed=progress.done, note=escape(_note(progress))
        )


class PlainLines:
    """Where each file stands, every few seconds."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}
        self._notes: dict[str, str] = {}

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


def _note(progress: Progress) -> str:
    return "verifying" if progress.phase is Phase.VERIFYING else progress.note


def shortened(name: str) -> str:
    """The end of a long name, which tells more than its beginning."""
    return name if len(name) <= NAME_CHARACTERS else "…" + name[1 - NAME_CHARACTERS :]


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
