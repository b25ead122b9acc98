"""The background worker's threads are woken by work that was committed, here or elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.core.lifecycle import UploadState
from app.db.waking import Waker, WakeupSocket
from tests.uploads.world import World


@pytest.fixture
def wakeup(tmp_path: Path) -> Iterator[WakeupSocket]:
    socket = WakeupSocket(tmp_path)
    socket.open()
    with closing(socket):
        yield socket


def test_another_process_wakes_the_worker(wakeup: WakeupSocket, tmp_path: Path) -> None:
    Waker(tmp_path).wake()
    began = time.monotonic()
    wakeup.wait(60)
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


def test_a_thread_of_the_worker_that_commits_work_wakes_it(wakeup: WakeupSocket) -> None:
    wakeup.notify()
    wakeup.wait(60)
    assert wakeup.count == 1
