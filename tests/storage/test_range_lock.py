"""One writer per range, across threads and processes; the newest one gets it."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier, Event, Thread
from time import sleep

import pytest

from app.core.errors import ServerBusy, WriterSuperseded
from app.core.ranges import ByteRange
from app.storage.local import range_lock
from app.storage.local.range_lock import is_takeover_requested, lock_range
from tests.processes import PROCESSES
from tests.storage.processes import hold, hold_deaf

SPAN = ByteRange(1000, 2000)
WAIT = 120


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch()
    return path


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def holder(
    path: Path, span: ByteRange, target: Callable[[Path, ByteRange, Connection], None] = hold
) -> Iterator[tuple[int, Connection]]:
    """Another process that has locked a range: its id, and a pipe to it."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=target, args=(path, span, theirs))
    process.start()
    try:
        assert ours.poll(WAIT)
        assert ours.recv() == "locked"
        assert process.pid is not None
        yield process.pid, ours
    finally:
        if process.is_alive():
            ours.send("end")
        process.join(WAIT)
        ours.close()


def locks_at_once(path: Path, span: ByteRange) -> bool:
    """Whether a range is free."""
    with opened(path) as descriptor:
        return range_lock.try_lock(descriptor, span)


def test_a_locked_range_is_not_free_until_it_is_closed(path: Path) -> None:
    with opened(path) as descriptor:
        lock_range(descriptor, SPAN)
        assert not locks_at_once(path, SPAN)
        assert not is_takeover_requested(descriptor, SPAN)
    assert locks_at_once(path, SPAN)


@pytest.mark.parametrize(
    ("other", "is_free"),
    [
        (ByteRange(0, 1000), True),
        (ByteRange(2000, 3000), True),
        (ByteRange(1999, 3000), False),
        (ByteRange(0, 1001), False),
        (ByteRange(1400, 1500), False),
        (ByteRange(0, 1 << 61), False),
    ],
)
def test_only_ranges_that_overlap_exclude_each_other(
    path: Path, other: ByteRange, is_free: bool
) -> None:
    with opened(path) as descriptor:
        lock_range(descriptor, SPAN)
        assert locks_at_once(path, other) == is_free


def test_an_empty_range_locks_too(path: Path) -> None:
    empty = ByteRange(0, 0)
    with opened(path) as descriptor:
        lock_range(descriptor, empty)
        assert not locks_at_once(path, empty)
        assert not locks_at_once(path, ByteRange(0, 1 << 61))
        assert locks_at_once(path, ByteRange(1, 2))


def test_a_newer_thread_takes_the_range_over_from_an_older_one(path: Path) -> None:
    is_locked, order = Event(), list[str]()

    def hold_until_asked() -> None:
        with opened(path) as descriptor:
            lock_range(descriptor, SPAN)
            is_locked.set()
            while not is_takeover_requested(descriptor, SPAN):
                Event().wait(0.002)
            order.append("older lets go")

    older = Thread(target=hold_until_asked)
    older.start()
    assert is_locked.wait(WAIT)
    with opened(path) as descriptor:
        lock_range(descriptor, SPAN)
        order.append("newer has it")
        assert not is_takeover_requested(descriptor, SPAN)
    older.join(WAIT)
    assert order == ["older lets go", "newer has it"]


def test_a_newer_process_takes_the_range_over_from_an_older_one(path: Path) -> None:
    with holder(path, SPAN) as (_, pipe), opened(path) as descriptor:
        lock_range(descriptor, ByteRange(1999, 2500))
        assert pipe.poll(WAIT)
        assert pipe.recv() == "let go"


def test_a_request_for_a_range_is_none_for_its_neighbours(path: Path) -> None:
    neighbour = ByteRange(2000, 3000)
    with (
        holder(path, SPAN),
        opened(path) as undisturbed,
        opened(path) as newer,
    ):
        lock_range(undisturbed, neighbour)
        lock_range(newer, SPAN)
        assert not is_takeover_requested(undisturbed, neighbour)


def test_a_killed_holder_leaves_no_lock(path: Path) -> None:
    with holder(path, SPAN, hold_deaf) as (pid, _):
        assert not locks_at_once(path, SPAN)
        os.kill(pid, signal.SIGKILL)
        with opened(path) as descriptor:
            lock_range(descriptor, SPAN)
            assert not is_takeover_requested(descriptor, SPAN)


def test_a_newcomer_gives_up_if_the_holder_does_not_stop(path: Path) -> None:
    with opened(path) as older:
        lock_range(older, SPAN)
        with opened(path) as newer, pytest.raises(ServerBusy):
            lock_range(newer, SPAN, takeover_seconds=0.05)
        assert not is_takeover_requested(older, SPAN), "the newcomer has withdrawn its request"


def test_many_contenders_hold_the_range_one_at_a_time_or_yield(path: Path) -> None:
    barrier, inside, most = Barrier(8), list[int](), list[int]()

    def take_turn(number: int) -> None:
        barrier.wait()
        with opened(path) as descriptor:
            try:
                lock_range(descriptor, SPAN)
            except WriterSuperseded:
                return
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take_turn, range(8)))
    assert most
    assert set(most) == {1}


def test_contenders_that_do_not_yield_hold_the_range_in_turn(path: Path) -> None:
    barrier, inside, most = Barrier(4), list[int](), list[int]()

    def take_turn(number: int) -> None:
        barrier.wait()
        with opened(path) as descriptor:
            lock_range(descriptor, SPAN, gives_way=False)
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take_turn, range(4)))
    assert most == [1] * 4


def test_of_two_waiting_the_newer_one_gets_the_range(path: Path) -> None:
    outcomes: dict[str, str] = {}
    older_waits = Event()

    def wait(name: str) -> None:
        with opened(path) as descriptor:
            if name == "older":
                older_waits.set()
            try:
                lock_range(descriptor, SPAN)
            except WriterSuperseded:
                outcomes[name] = "gave way"
            else:
                outcomes[name] = "got it"

    with opened(path) as holder:
        lock_range(holder, SPAN)
        older = Thread(target=wait, args=("older",))
        older.start()
        older_waits.wait()
        while not is_takeover_requested(holder, SPAN):
            sleep(0.001)
        newer = Thread(target=wait, args=("newer",))
        newer.start()
        older.join()
    newer.join()
    assert outcomes == {"older": "gave way", "newer": "got it"}
