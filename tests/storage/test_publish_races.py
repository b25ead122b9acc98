"""Publishing while others publish, write, delete, or were killed midway."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from threading import Barrier, Event, Thread

import pytest

from app.core.errors import WriterSuperseded
from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.local.range_writer import LocalRangeWriter
from tests.processes import PROCESSES
from tests.storage.conftest import Folders, Place
from tests.storage.processes import publish
from tests.storage.sources import pattern
from tests.storage.stores import KEY, LIMITS, content, fill, names, staged

LENGTH = 3_000_017
DIGEST = sha256(pattern(0, LENGTH)).hexdigest()


def digest_of(place: Place) -> str:
    return sha256(content(place.store, KEY)).hexdigest()


def test_threads_publishing_at_once_all_succeed(place: Place) -> None:
    staged(place.store, KEY, LENGTH)
    barrier = Barrier(8)

    def run(_number: int) -> None:
        store = place.another()
        barrier.wait()
        store.library.publish(KEY, LENGTH)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert digest_of(place) == DIGEST
    assert place.published() == {KEY}
    assert place.staged() == set()


def test_processes_publishing_at_once_all_succeed(folders: Folders) -> None:
    staged(folders.store, KEY, LENGTH)
    barrier = PROCESSES.Barrier(3)
    arguments = (folders.staging, folders.library, LENGTH, barrier)
    processes = [PROCESSES.Process(target=publish, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert digest_of(folders) == DIGEST
    assert names(folders.library) == {KEY}


def test_nothing_partial_is_ever_visible(folders: Folders) -> None:
    staged(folders.store, KEY, LENGTH)
    has_looked, seen = Event(), set[int]()

    def look() -> None:
        while not seen:
            with suppress(FileNotFoundError):
                seen.add((folders.library / KEY).stat().st_size)
            has_looked.set()

    watcher = Thread(target=look, daemon=True)
    watcher.start()
    assert has_looked.wait(30)
    folders.store.library.publish(KEY, LENGTH)
    watcher.join(30)
    assert seen == {LENGTH}


def test_publishing_waits_for_a_writer(folders: Folders) -> None:
    folders.store.staging.reserve(KEY, 1000)
    fill(folders.store, KEY, 0, 500)
    publisher = Thread(target=folders.another().library.publish, args=(KEY, 1000))
    with folders.store.staging.writer(KEY, ByteRange(500, 1000), LIMITS):
        publisher.start()
        publisher.join(0.05)
        assert names(folders.library) <= {f".{KEY}.incoming"}
        with (folders.staging / KEY).open("r+b") as file:
            file.seek(500)
            file.write(pattern(500, 1000))
    publisher.join(30)
    assert content(folders.store, KEY) == pattern(0, 1000)


def test_a_file_that_vanishes_while_publishing_waits_is_lost(folders: Folders) -> None:
    staged(folders.store, KEY, 1000)
    outcomes: list[object] = []

    def run() -> None:
        try:
            folders.another().library.publish(KEY, 1000)
            outcomes.append(None)
        except BytesLost as error:
            outcomes.append(error)

    publisher = Thread(target=run)
    with folders.store.staging.writer(KEY, ByteRange(0, 1000), LIMITS) as writer:
        publisher.start()
        while not is_waited_for(writer):
            publisher.join(0.005)
        (folders.staging / KEY).unlink()
    publisher.join(30)
    assert [type(outcome) for outcome in outcomes] == [BytesLost]


@pytest.mark.parametrize("step", [1, 2])
def test_a_file_deleted_during_publishing_is_lost_or_whole(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    staged(folders.store, KEY, 1000)
    fsync, calls = os.fsync, list[int]()

    def delete_then_sync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == step:
            folders.another().library.delete(KEY)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", delete_then_sync)
    with suppress(BytesLost):
        folders.store.library.publish(KEY, 1000)
    left = names(folders.library) | names(folders.staging)
    assert left in (set(), {KEY})
    assert not left or content(folders.store, KEY) == pattern(0, 1000)


class Killed(BaseException):
    """Simulates the end of the process at that point."""


def kill(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("call", ["fsync", "rename", "sendfile", "unlink"])
def test_publishing_can_be_repeated_after_a_kill_at_any_step(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    staged(folders.store, KEY, LENGTH, room=LENGTH + 4096)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, lambda *_, **__: kill())
        with suppress(Killed):
            folders.store.library.publish(KEY, LENGTH)
    folders.another().library.publish(KEY, LENGTH)
    assert digest_of(folders) == DIGEST
    assert names(folders.library) == {KEY}
    assert names(folders.staging) == set()


def is_waited_for(writer: LocalRangeWriter) -> bool:
    """Whether someone waits for the range this writer holds."""
    try:
        writer.stop_if_superseded()
    except WriterSuperseded:
        return True
    return False
