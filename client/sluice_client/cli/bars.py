"""Progress bars on a terminal."""

from __future__ import annotations

import sys
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

from sluice_client.cli.output import Notices, plain
from sluice_client.progress import Phase, Progress

NAME_CHARACTERS = 32


@contextmanager
def terminal_bars(*, as_json: bool = False) -> Iterator[TerminalBars]:
    """A listener that draws on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with Bars(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bars:
        yield TerminalBars(bars, as_json=as_json)


@contextmanager
def making_bar(name: str, *, as_json: bool = False) -> Iterator[MakingBar]:
    """A bar, on standard error, of something that the server makes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bars(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bars:
        yield MakingBar(bars, f"{name} is being made", as_json=as_json)


class MakingBar:
    """How much is made."""

    def __init__(self, bars: Bars, text: str, *, as_json: bool = False) -> None:
        self._bars = bars
        self._text = text
        self._task: TaskID | None = None
        self.waiting = Notices(self._note, as_json=as_json)

    def __call__(self, share: float) -> None:
        """Draw the bar, which appears with the first call."""
        if self._task is None:
            self._task = self._bars.add_task(self._text, total=1.0)
        self._bars.update(self._task, completed=share)

    def _note(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


class TerminalBars:
    """One bar per file, removed when the file is done."""

    def __init__(self, bars: Bars, *, as_json: bool = False) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self.waiting = Notices(self.note, as_json=as_json)

    def __call__(self, progress: Progress) -> None:
        """Draw the bar of a file."""
        if progress.phase is Phase.DONE:
            task = self._tasks.pop(progress.name, None)
            if task is not None:
                self._bars.remove_task(task)
            return
        if progress.name not in self._tasks:
            self._tasks[progress.name] = self._bars.add_task(
                escape(plain(shortened(progress.name))), total=progress.total, note=""
            )
        if progress.phase is Phase.WAITING:
            self.waiting(progress.note, progress.name)
        note = "verifying" if progress.phase is Phase.VERIFYING else ""
        self._bars.update(self._tasks[progress.name], completed=progress.done, note=note)

    def result(self, text: str) -> None:
        """A line of output; above the bars where both go to the terminal."""
        if sys.stdout.isatty():
            self.note(text)
        else:
            click.echo(text)

    def note(self, text: str) -> None:
        """A line above the bars."""
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


def shortened(name: str) -> str:
    """The end of a long name, which tells more than its beginning."""
    return name if len(name) <= NAME_CHARACTERS else "…" + name[1 - NAME_CHARACTERS :]
