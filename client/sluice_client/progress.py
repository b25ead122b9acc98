"""What a transfer reports while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

REPORT_SECONDS = 0.1


class Phase(Enum):
    """The phases of a transfer."""

    MOVING = "moving"
    VERIFYING = "verifying"
    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a transfer at one moment; all numbers are bytes.

    `total` is None for a stream of unknown length. `done` includes what was there before
    (`resumed`), and decreases when a chunk fails. `note` says what the transfer is waiting for.
    """

    name: str
    total: int | None
    done: int
    resumed: int
    phase: Phase
    note: str = ""


ProgressListener = Callable[[Progress], None]
"""Called from several threads, one at a time, about ten times a second per file at most."""


class Meter:
    """Adds up what several threads move, and reports it to a listener."""

    def __init__(self, name: str, total: int | None, listener: ProgressListener | None) -> None:
        self._name = name
        self._total = total
        self._listener = listener
        self._done = 0
        self._resumed = 0
        self._reported_at = 0.0
        self._lock = threading.Lock()

    def start_at(self, done: int) -> None:
        """`done` bytes were there already."""
        with self._lock:
            self._done = self._resumed = done
        self.report(Phase.MOVING)

    def moved(self, count: int) -> None:
        """Count more bytes; negative if some have to be sent again."""
        with self._lock:
            self._done += count
            is_due = time.monotonic() - self._reported_at >= REPORT_SECONDS
        if is_due:
            self.report(Phase.MOVING)

    def waiting(self, note: str) -> None:
        """Tell the listener what the transfer waits for."""
        self.report(Phase.WAITING, note)

    def report(self, phase: Phase, note: str = "") -> None:
        """Tell the listener now."""
        if self._listener is None:
            return
        with self._lock:
            self._reported_at = time.monotonic()
            done = self._done if self._total is None else min(self._done, self._total)
            self._listener(Progress(self._name, self._total, done, self._resumed, phase, note))
