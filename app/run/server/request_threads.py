"""A thread pool that grows with the number of running requests, and shrinks when they end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

IDLE_SECONDS = 10.0
"""How long an idle thread lives. A new one costs 0.1 ms."""

Job = Callable[[], None]


class RequestThreads(Executor):
    """Runs each call at once, in the most recently idle thread or in a new one.

    The standard library's pool never ends idle threads, and when it ends waits for those that still
    serve a client. Here the caller limits their number, and the process exits without them.

    Nothing here takes a lock: gunicorn calls `shutdown` in a signal handler, which may have
    interrupted any of it.
    """

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        # Used as a stack: adding, popping and removing are each atomic.
        self._idle: dict[_RequestThread, None] = {}

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Returns a future; it holds a `RuntimeError` if the system allows no more threads."""
        future = Future[T]()

        def job() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future hands it on
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
        """End the idle threads; never waits for the others, regardless of the arguments."""
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
            del job  # Otherwise it would keep the last request's objects alive.
            self._idle[self] = None
            job = self._next_job()

    def _next_job(self) -> Job | None:
        try:
            return self.jobs.get(timeout=self._idle_seconds)
        except Empty:
            pass
        try:
            del self._idle[self]
        except KeyError:  # Just taken from the idle threads: a call is about to arrive.
            return self.jobs.get()
        return None
