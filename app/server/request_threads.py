"""Threads for as many requests as there are at once, and not for longer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

IDLE_SECONDS = 10.0
"""How long a thread without a request lives. A new one costs 0.1 ms."""

Job = Callable[[], None]


class RequestThreads(Executor):
    """Runs each call at once: in the thread that became idle last, or else in a new one.

    The standard library's pool keeps every thread it ever had, and at its end waits for those that
    still serve a client. Here the caller bounds their number, and the process ends without them.

    Nothing here takes a lock: gunicorn calls `shutdown` in a signal handler, which may have
    interrupted any of it.
    """

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        # Used as a stack: adding, taking the last one and removing one are atomic each.
        self._idle: dict[_RequestThread, None] = {}

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The outcome to come; a `RuntimeError` in it where the system allows no more threads."""
        future = Future[T]()

        def job() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - whoever waits for the outcome gets it
                future.set_exception(error)

        try:
            thread, _ = self._idle.popitem()
        except KeyError:
            thread = _RequestThread(self._idle, self._idle_seconds)
            try:
                thread.start()
            except RuntimeError as error:
                future.set_exception(error)
                return future
        thread.jobs.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the idle threads. Nobody waits for the others, whatever the arguments say."""
        while self._idle:
            try:
                thread, _ = self._idle.popitem()
            except KeyError:
                return
            thread.jobs.put(None)


class _RequestThread(Thread):
    def __init__(self, idle: dict[_RequestThread, None], idle_seconds: float) -> None:
        super().__init__(name="request", daemon=True)
        self.jobs = SimpleQueue[Job | None]()
        self._idle = idle
        self._idle_seconds = idle_seconds

    def run(self) -> None:
        job = self.jobs.get()
        while job is not None:
            job()
            del job  # Or what the last request needed would live on with the thread.
            self._idle[self] = None
            job = self._next_job()

    def _next_job(self) -> Job | None:
        try:
            return self.jobs.get(timeout=self._idle_seconds)
        except Empty:
            pass
        try:
            del self._idle[self]
        except KeyError:  # Taken out of the idle ones a moment ago: a call is on its way.
            return self.jobs.get()
        return None
