"""Updates that wait at the same time share a commit, and nobody waits for a lock of others."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest

from app.core.ranges import ByteRange
from app.db.engine import Database
from app.db.sql import MOST_TOGETHER, SharedUpdates
from app.records import statements
from app.records.uploads import UploadRecords
from tests.records.making import NOW, new_upload
from tests.waiting import wait_until


class Server:
    """Makes even numbers, and shows what came together; the first time it waits to be let on."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.goes_on = Event()
        self.error: Exception | None = None

    def make(self, numbers: Sequence[int]) -> list[bool]:
        self.groups.append([*numbers])
        assert self.goes_on.wait(60)
        if self.error is not None:
            raise self.error
        return [number % 2 == 0 for number in numbers]


def submit_two(
    pool: ThreadPoolExecutor, shared: SharedUpdates[int], server: Server
) -> tuple[Future[bool], Future[bool]]:
    """Zero, which the server makes alone, and two, which waits until it has."""
    first = pool.submit(shared.make, 0)
    wait_until(lambda: server.groups == [[0]], "the first one is under way")
    second = pool.submit(shared.make, 2)
    wait_until(lambda: len(shared._waiting) == 1, "the second one waits")
    return first, second


class Clock:
    """Stands still unless it is set."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_those_who_wait_are_made_together_and_each_learns_its_own_outcome() -> None:
    server = Server()
    shared = SharedUpdates(server.make)
    count = MOST_TOGETHER + 10
    with ThreadPoolExecutor(count + 1) as pool:
        first = pool.submit(shared.make, 0)
        wait_until(lambda: server.groups == [[0]], "the first one is under way")
        others = {number: pool.submit(shared.make, number) for number in range(1, count + 1)}
        wait_until(lambda: len(shared._waiting) == count, "the others wait")
        server.goes_on.set()
        assert first.result()
        assert {number for number, one in others.items() if one.result()} == {
            number for number in others if number % 2 == 0
        }
    assert [len(group) for group in server.groups] == [1, MOST_TOGETHER, 10]
    assert sorted(each for group in server.groups for each in group) == [*range(count + 1)]


def test_a_batch_waits_for_the_threads_of_the_last_one() -> None:
    server, clock = Server(), Clock()
    shared = SharedUpdates(server.make, clock=clock)
    with ThreadPoolExecutor(3) as pool:
        first, second = submit_two(pool, shared, server)
        clock.seconds += 1
        server.goes_on.set()
        assert first.result()
        assert server.groups == [[0]]
        assert pool.submit(shared.make, 4).result()
        assert second.result()
    assert server.groups == [[0], [2, 4]]


def test_a_batch_does_not_wait_for_threads_that_do_not_come_back_soon() -> None:
    server, clock = Server(), Clock()
    shared = SharedUpdates(server.make, clock=clock)
    with ThreadPoolExecutor(2) as pool:
        first, second = submit_two(pool, shared, server)
        server.goes_on.set()
        assert first.result()
        assert second.result()
    clock.seconds += 1
    assert shared.make(4)
    assert server.groups == [[0], [2], [4]]


def test_what_fails_fails_for_all_of_its_group_and_for_nobody_later() -> None:
    server = Server()
    shared = SharedUpdates(server.make)
    server.goes_on.set()
    server.error = ValueError("no server")
    with pytest.raises(ValueError, match="no server"):
        shared.make(2)
    server.error = None
    assert shared.make(2)
    assert not shared.make(3)


def test_chunks_of_many_uploads_recorded_at_once_are_all_recorded(on_server: Database) -> None:
    records = UploadRecords(on_server)
    uploads = [records.add(new_upload(length=11))[0] for _ in range(16)]

    def send(number: int) -> None:
        upload = uploads[number]
        for start in range(10):
            upload = records.add_received(upload, ByteRange(start, start + 1), NOW)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(send, range(16)))
    assert [records.get(upload.id).offset for upload in uploads] == [10] * 16


def test_two_chunks_of_one_upload_in_one_group_are_both_recorded(on_server: Database) -> None:
    records = UploadRecords(on_server)
    upload, _ = records.add(new_upload(length=3))
    changes = [
        (upload.with_received(ByteRange(start, start + 1), NOW), upload) for start in range(2)
    ]
    with on_server.read() as connection:
        assert statements.store_unchanged(connection, changes) == [True, False]
    for start in range(2):  # Both as read before either was recorded.
        records.add_received(upload, ByteRange(start, start + 1), NOW)
    assert records.get(upload.id).offset == 2


def test_an_upload_that_somebody_has_locked_holds_up_no_other(on_server: Database) -> None:
    records = UploadRecords(on_server)
    held, other = (records.add(new_upload(length=3))[0] for _ in range(2))
    changes = [(each.with_received(ByteRange(0, 1), NOW), each) for each in (held, other)]
    with on_server.write() as holder:
        statements.get(holder, held.id, for_update=True)
        with on_server.read() as connection:
            assert statements.store_unchanged(connection, changes) == [False, True]
    assert records.get(other.id).offset == 1
