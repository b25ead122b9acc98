"""Threads that share one job."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sluice_client.errors import Interrupted, SluiceError

LEAVE_SECONDS = 0.7
"""How long an interrupted job waits for its threads. One that waits for a silent server is
abandoned, as it holds nothing that matters."""


class Crew:
    """Runs `work` in several threads until all return or one raises."""

    def __init__(self, size: int, work: Callable[[], None], stop: threading.Event) -> None:
        self._work = work
        self._stop = stop
        self._errors: list[BaseException] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"transfer-{number}", daemon=True)
            for number in range(size)
        ]

    @property
    def is_over(self) -> bool:
        """Whether a thread has failed, so that the others should end."""
        return self._is_over.is_set() or self._stop.is_set()

    def run(self) -> None:
        """Work; raises the first error of any thread, or `Interrupted`."""
        for thread in self._threads:
            thread.start()
        while any(thread.is_alive() for thread in self._threads) and not self.is_over:
            self._join(0.2)
        if self.is_over:
            self._join(LEAVE_SECONDS)
        if self._errors:
            raise self._errors[0]
        if self._stop.is_set():
            raise Interrupted("Stopped.")

    def _join(self, seconds: float) -> None:
        share = seconds / max(1, len(self._threads))
        for thread in self._threads:
            thread.join(share)

    def _run(self) -> None:
        try:
            self._work()
        except (SluiceError, OSError) as error:
            self._errors.append(error)
            self._is_over.set()
        except BaseException as error:
            self._errors.append(error)
            self._is_over.set()
            raise
