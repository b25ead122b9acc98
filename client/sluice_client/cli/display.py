"""What a person sees while a transfer runs: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from sluice_client.cli.notices import Notices
from sluice_client.cli.text import say, size_text
from sluice_client.progress import Phase, Progress

LINE_SECONDS = 10.0
"""How often a log file gets a line about a transfer."""


class Display(Protocol):
    """A `ProgressListener` that lets other lines be written between its own."""

    def __call__(self, progress: Progress) -> None:
        """Show a moment of a transfer."""

    def result(self, text: str) -> None:
        """Write a line to standard output."""

    def note(self, text: str) -> None:
        """Write a line for people."""

    @property
    def waiting(self) -> Notices:
        """Where notices of waiting go."""


@contextmanager
def progress_display(*, as_json: bool = False) -> Iterator[Display]:
    """What shows transfers for as long as they run; `as_json` makes notices JSON events."""
    if not sys.stderr.isatty():
        yield PlainLines(as_json=as_json)
        return
    # Only here, as it takes longer to load than most commands take to run.
    from sluice_client.cli.bars import terminal_bars  # noqa: PLC0415

    with terminal_bars(as_json=as_json) as bars:
        yield bars


class PlainLines:
    """Where each file stands, every few seconds."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._told_at: dict[str, float] = {}
        self.result = click.echo
        self.note = say
        self.waiting = Notices(say, as_json=as_json)

    def __call__(self, progress: Progress) -> None:
        """Write, if it is time or something has happened."""
        now, name = time.monotonic(), progress.name
        if progress.phase is Phase.DONE:
            self._told_at.pop(name, None)
            return
        if progress.phase is Phase.WAITING:
            self.waiting(progress.note, name)
        is_first = name not in self._told_at
        if is_first and progress.resumed and progress.resumed < progress.total:
            say(f"{name}: resuming at {size_text(progress.resumed)}")
        if is_first or now - self._told_at[name] >= LINE_SECONDS:
            self._told_at[name] = now
            if not is_first:
                say(f"{name}: {size_text(progress.done)} of {size_text(progress.total)}")
