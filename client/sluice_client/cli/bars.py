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
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

from sluice_client.cli.output import Notices, plain
from sluice_client.progress import Phase, Progress

MOST_NAME_CHARACTERS, LEAST_NAME_CHARACTERS = 32, 12

PERCENTAGE_CHARACTERS = 6
OPTIONAL_CHARACTERS = {"speed": 11, "time": 10, "bar": 25, "size": 16}
"""What each column takes with the space before it. A terminal that is too narrow for all of them
beside a name loses them in this order."""


@contextmanager
def terminal_bars(*, as_json: bool = False) -> Iterator[TerminalBars]:
    """A listener that draws on standard error."""
    console = Console(stderr=True)
    shown, name_characters = layout(console.width)
    columns = {
        "name": TextColumn("{task.description}"),
        "bar": BarColumn(bar_width=24),
        "percentage": TextColumn("{task.percentage:>3.0f} %"),
        "size": DownloadColumn(),
        "speed": TransferSpeedColumn(),
        "time": _TimeOrNote(),
    }
    kept = [column for name, column in columns.items() if name in {*shown, "name", "percentage"}]
    with Bars(*kept, console=console, redirect_stdout=False, redirect_stderr=False) as bars:
        yield TerminalBars(bars, name_characters, as_json=as_json)


def layout(width: int) -> tuple[list[str], int]:
    """The optional columns for a line of that many characters, and how many a name may have."""
    shown = list(OPTIONAL_CHARACTERS)

    def left() -> int:
        taken = sum(OPTIONAL_CHARACTERS[name] for name in shown)
        return width - PERCENTAGE_CHARACTERS - taken

    while shown and left() < LEAST_NAME_CHARACTERS:
        shown.pop(0)
    return shown, max(1, min(MOST_NAME_CHARACTERS, left()))


class _TimeOrNote(TimeRemainingColumn):
    """The time left, or what the file waits for."""

    def render(self, task: Task) -> Text:
        """See `ProgressColumn.render`."""
        note = task.fields.get("note")
        return Text(note) if note else super().render(task)


@contextmanager
def making_bar(name: str, *, as_json: bool = False) -> Iterator[MakingBar]:
    """A bar, on standard error, of something that the server makes."""
    console = Console(stderr=True)
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}"),
        TextColumn("{task.percentage:>3.0f} %"),
    ]
    if "bar" in layout(console.width)[0]:
        columns.insert(1, BarColumn(bar_width=24))
        columns.append(TimeRemainingColumn())
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

    def __init__(self, bars: Bars, name_characters: int, *, as_json: bool = False) -> None:
        self._bars = bars
        self._name_characters = name_characters
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
                escape(plain(shortened(progress.name, self._name_characters))),
                total=progress.total,
                note="",
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


def shortened(name: str, most: int) -> str:
    """The end of a long name, which tells more than its beginning."""
    return name if len(name) <= most else "…" + name[len(name) - most + 1 :]
