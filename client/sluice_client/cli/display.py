"""Progress for people: bars on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from sluice_client.cli.output import Notices, say, size_text
from sluice_client.progress import Phase, Progress

LINE_SECONDS = 10.0
"""How often a log file gets a line about a transfer."""


class Display(Protocol):
    """A `ProgressListener` that can also print other lines."""

    def __call__(self, progress: Progress) -> None:
        """Show the progress of a transfer."""

    def result(self, text: str) -> None:
        """Write a line to standard output."""

    def note(self, text: str) -> None:
        """Write a line for people."""

    @property
    def waiting(self) -> Notices:
        """Where notices of waiting go."""


@contextmanager
def progress_display(*, as_json: bool = False) -> Iterator[Display]:
    """The display for this terminal or log; with `as_json`, notices are JSON events."""
    if not sys.stderr.isatty():
        yield PlainLines(as_json=as_json)
        return
    # Imported here because it takes longer to load than most commands take to run.
    from sluice_client.cli.bars import terminal_bars  # noqa: PLC0415

    with terminal_bars(as_json=as_json) as bars:
        yield bars


class MakingDisplay(Protocol):
    """Shows how much of something is made, from 0 to 1."""

    def __call__(self, share: float) -> None:
        """Show it."""

    @property
    def waiting(self) -> Notices:
        """Where notices of waiting go."""


@contextmanager
def making_display(name: str, *, as_json: bool = False) -> Iterator[MakingDisplay]:
    """The display, for this terminal or log, of something that the server makes."""
    if not sys.stderr.isatty():
        yield MakingLines(name, as_json=as_json)
        return
    from sluice_client.cli.bars import making_bar  # noqa: PLC0415 - as above

    with making_bar(name, as_json=as_json) as bar:
        yield bar


class MakingLines:
    """How much is made, every few seconds."""

    def __init__(self, name: str, *, as_json: bool = False) -> None:
        self._name = name
        self._told_at = -LINE_SECONDS
        self.waiting = Notices(say, as_json=as_json)

    def __call__(self, share: float) -> None:
        """Write, if it is time."""
        now = time.monotonic()
        if now - self._told_at >= LINE_SECONDS:
            self._told_at = now
            say(f"{self._name} is being made: {100 * share:.0f} %")


class PlainLines:
    """The progress of each file, every few seconds."""

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
        if is_first and progress.resumed and progress.resumed != progress.total:
            say(f"{name}: resuming at {size_text(progress.resumed)}")
        if is_first or now - self._told_at[name] >= LINE_SECONDS:
            self._told_at[name] = now
            if not is_first:
                of_total = "" if progress.total is None else f" of {size_text(progress.total)}"
                say(f"{name}: {size_text(progress.done)}{of_total}")
