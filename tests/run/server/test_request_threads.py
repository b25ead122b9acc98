"""Threads that start with the requests and end after them."""

from __future__ import annotations

import threading
import time
from threading import Barrier, Event

import pytest

from app.run.server.request_threads import RequestThreads
from tests.waiting import wait_until


def threads_of_pools() -> set[threading.Thread]:
    """The threads of all pools in this process; other tests may have left some."""
    return {thread for thread in threading.enumerate() if thread.name == "request"}


def test_all_calls_run_at_once() -> None:
    pool, all_there = RequestThreads(), Barrier(50)
    outcomes = [pool.submit(all_there.wait, 30) for _ in range(50)]
    assert {outcome.result(30) for outcome in outcomes} == set(range(50))


def test_consecutive_calls_reuse_a_thread() -> None:
    pool, names = RequestThreads(idle_seconds=600), set[int]()
    for _ in range(20):
        names.add(pool.submit(threading.get_ident).result(30))
        wait_until(lambda: pool._idle, "a moment after the result its thread is idle")
    assert len(names) == 1


def test_idle_threads_end() -> None:
    pool, go = RequestThreads(idle_seconds=0.2), Event()
    before = threads_of_pools()
    for _ in range(20):
        pool.submit(go.wait, 30)
    assert len(threads_of_pools() - before) == 20
    go.set()
    wait_until(lambda: threads_of_pools() <= before, "idle threads have ended", 30)
    assert pool.submit(int, "5").result(30) == 5


def test_a_call_that_reaches_an_ending_thread_still_runs() -> None:
    pool = RequestThreads(idle_seconds=0.001)
    for number in range(500):
        assert pool.submit(abs, number).result(30) == number
        time.sleep(0.001)


def test_an_error_goes_to_the_caller() -> None:
    with pytest.raises(ValueError, match="five"):
        RequestThreads().submit(int, "five").result(30)


def test_without_a_free_thread_the_call_fails_and_the_caller_survives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert isinstance(RequestThreads().submit(int).exception(30), RuntimeError)


def test_shutting_down_a_pool_does_not_wait() -> None:
    pool, go = RequestThreads(idle_seconds=0.2), Event()
    before = threads_of_pools()
    busy = pool.submit(go.wait, 30)
    pool.submit(int).result(30)
    pool.shutdown()
    wait_until(lambda: len(threads_of_pools() - before) == 1, "only the busy one is left", 30)
    go.set()
    assert busy.result(30)
