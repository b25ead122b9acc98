"""Threads that share one job."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sluice_client.errors import Interrupted, SluiceError

LEAVE_SECONDS = 0.7
"""How long an interrupted job waits for its threads. One that waits for a silent server is
abandoned, as it holds nothing that matters."""


class Crew:
    """Runs `work` in several threads until all return or one raises.

    It begins with `size` threads, each with memory of its own, and may add more.
    """

    def __init__(self, size: int, work: Callable[[], None], stop: threading.Event) -> None:
        self._work = work
        self._stop = stop
        self._errors: list[BaseException] = []
        self._is_over = threading.Event()
        self._threads = [self._new_thread() for _ in range(size)]
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether a thread has failed, so that the others should end."""
        return self._is_over.is_set() or self._stop.is_set()

    def run(self) -> None:
        """Work; raises the first error of any thread, or `Interrupted`."""
        for thread in list(self._threads):
            thread.start()
        while any(thread.is_alive() for thread in list(self._threads)) and not self.is_over:
            self._join(0.2)
        if self.is_over:
            self._join(LEAVE_SECONDS)
        if self._errors:
            raise self._errors[0]
        if self._stop.is_set():
            raise Interrupted("Stopped.")

    def grow_to(self, size: int) -> None:
        """Have at least so many threads; one of them calls this, so that the job is not over."""
        with self._lock:
            while len(self._threads) < size:
                thread = self._new_thread()
                thread.start()
                self._threads.append(thread)

    def abandon(self, thread: threading.Thread) -> None:
        """Do not wait for one of the threads: nothing depends on what it still does."""
        with self._lock:
            self._threads.remove(thread)

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="transfer", daemon=True)

    def _join(self, seconds: float) -> None:
        threads = list(self._threads)
        share = seconds / max(1, len(threads))
        for thread in threads:
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
