"""The background worker's threads are woken by work that was committed, here or elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from app.core.lifecycle import UploadState
from app.db.waking import Waker, WakeupSocket
from app.run.server.background_worker import repeat
from tests.uploads.world import World
from tests.waiting import wait_until

NEVER = 3600.0


@pytest.fixture
def wakeup(tmp_path: Path) -> Iterator[WakeupSocket]:
    socket = WakeupSocket(tmp_path)
    socket.open()
    with closing(socket):
        yield socket


def test_another_process_wakes_every_thread(wakeup: WakeupSocket, tmp_path: Path) -> None:
    events = [wakeup.event(), wakeup.event()]
    wakeup.wait(0.0)
    assert not any(event.is_set() for event in events)
    Waker(tmp_path).wake()
    began = time.monotonic()
    wakeup.wait(60)
    assert all(event.is_set() for event in events)
    assert (wakeup.count, time.monotonic() - began < 60) == (1, True)


def test_every_end_of_an_upload_wakes_the_worker(wakeup: WakeupSocket, tmp_path: Path) -> None:
    world = World(tmp_path)
    for state in (UploadState.CANCELLED, UploadState.EXPIRED):
        before = wakeup.count
        upload = world.create(10)
        wakeup.wait(0.0)
        assert wakeup.count == before
        world.records.move(upload.id, state, world.now)
        wakeup.wait(0.0)
        assert wakeup.count == before + 1


def test_a_thread_that_commits_work_wakes_the_others(wakeup: WakeupSocket) -> None:
    event = wakeup.event()
    wakeup.set_events()
    assert event.is_set()


def test_a_job_that_is_woken_runs_at_once_and_stops_when_it_is_told() -> None:
    runs, stop, woken = list[int](), Event(), Event()
    work = partial(repeat, lambda: runs.append(1), every=NEVER, stop=stop, woken=woken)
    thread = Thread(target=work, daemon=True)
    thread.start()
    for count in (1, 2):
        wait_until(lambda count=count: len(runs) == count, "it has run")  # type: ignore[misc]
        wait_until(lambda: not woken.is_set(), "it waits")
        if count == 2:
            stop.set()
        woken.set()
    thread.join(60)
    assert (thread.is_alive(), len(runs)) == (False, 2)


def test_a_wake_up_during_a_job_runs_it_again() -> None:
    runs, stop, woken = list[int](), Event(), Event()

    def job() -> None:
        runs.append(1)
        woken.set()
        if len(runs) == 2:
            stop.set()

    repeat(job, every=NEVER, stop=stop, woken=woken)
    assert len(runs) == 2
