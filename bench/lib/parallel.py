"""Clients side by side: a process each where the client's own cost shows, threads where many."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

Result = TypeVar("Result")


def in_threads(count: int, job: Callable[[int], Result]) -> list[Result]:
    """Run `job(0)` to `job(count - 1)` at once; their results; the first error is raised."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(job, range(count)))


@contextmanager
def in_processes(count: int, job: Callable[[int], Result]) -> Iterator[Callable[[], list[Result]]]:
    """`count` processes that wait for the call of what you get, and then run as `in_threads` does.

    Threads of one process wait for each other's interpreter between two chunks. The processes are
    there before they are called, so that their start is not measured.
    """
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for index in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=_run_when_told, args=(theirs, job, index))
        with warnings.catch_warnings():
            # Python 3.12 warns of threads in the parent. These children use sockets and nothing
            # that a thread may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        yield lambda: _results(pipes)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _run_when_told(pipe: Connection, job: Callable[[int], Result], index: int) -> None:
    pipe.recv()
    try:
        pipe.send((job(index), None))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        pipe.send((None, error))


def _results(pipes: list[Connection]) -> list[Result]:
    for pipe in pipes:
        pipe.send(None)
    outcomes = [pipe.recv() for pipe in pipes]
    for _, error in outcomes:
        if error is not None:
            raise error
    return [result for result, _ in outcomes]
