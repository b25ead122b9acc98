"""What waits between clients and the bucket, within a limit that all share."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

from app.core.errors import ServerBusy
from app.core.ranges import ByteRange, RangeSet
from app.storage.local.folder import Folder
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.connections import Connections, Request, StoreUnreachable
from app.storage.s3.contents import SpoolTooShort
from app.storage.s3.spool import FIRST_BYTES, Room, Spool, Spools
from app.storage.s3.store import BucketStore
from tests.storage.nodes import CELL
from tests.storage.sources import PiecesSource, StallingSource, body, pattern
from tests.storage.stores import KEY, LIMITS, content, ignore
from tests.waiting import wait_until

LENGTH = 5 * CELL
CAPACITY = CELL + 3 * FIRST_BYTES


@contextmanager
def store_in(
    bucket: Bucket,
    catalog: BucketCatalog,
    folder: Path,
    *,
    checkpoint_seconds: float = 30.0,
    room_seconds: float = 10.0,
) -> Iterator[BucketStore]:
    """One with a reserved file, and room for little more than a cell."""
    store = BucketStore(
        *(bucket, catalog, folder),
        spool_bytes=CAPACITY,
        smallest_cell_bytes=CELL,
        checkpoint_seconds=checkpoint_seconds,
    )
    store.cells.spools = Spools(Folder(folder), CAPACITY, room_seconds=room_seconds)
    store.staging.reserve(KEY, LENGTH)
    yield store


def write(store: BucketStore, start: int, end: int, told: list[ByteRange]) -> None:
    span = ByteRange(start, end)
    with store.staging.writer(KEY, span, LIMITS) as writer:
        writer.write(span, body(start, end), told.append)


def test_the_spools_of_all_processes_share_one_limit(tmp_path: Path) -> None:
    one, two = (Spools(Folder(tmp_path), 1000, room_seconds=0.0) for _ in range(2))
    first = one.open(ByteRange(0, 600))
    with pytest.raises(ServerBusy):
        two.open(ByteRange(0, 600))
    with two.open(ByteRange(0, 400)):
        first.shrink(100)
        with one.open(ByteRange(0, 500)), pytest.raises(ServerBusy):
            two.open(ByteRange(0, 1))
    first.close()
    with two.open(ByteRange(0, 1000)):
        pass


def test_a_spool_that_was_sent_is_written_again_unless_it_must_be_empty(tmp_path: Path) -> None:
    spools, span = Spools(Folder(tmp_path), 1000, room_seconds=0.0), ByteRange(0, 1000)
    with spools.open(span) as sent:
        os.write(sent.descriptor, b"sent")
    with spools.open(span) as empty:
        assert os.fstat(empty.descriptor).st_size == 0
    held = [spools.begin(ByteRange(0, 100), may_reuse_file=True) for _ in range(3)]
    assert [os.fstat(spool.descriptor).st_size for spool in held] == [0, 4, 0]
    for spool in held:
        spool.close()


def test_a_spool_that_could_not_be_sent_is_not_written_again(tmp_path: Path) -> None:
    spools, span = Spools(Folder(tmp_path), 1000, room_seconds=0.0), ByteRange(0, 1000)

    def fail() -> None:
        with spools.open(span) as unsent:
            os.write(unsent.descriptor, b"on its way")
            raise ServerBusy("The object store does not answer in time.")

    with pytest.raises(ServerBusy):
        fail()
    with spools.begin(span, may_reuse_file=True) as next_one:
        assert os.fstat(next_one.descriptor).st_size == 0


def test_a_spool_that_the_store_may_still_be_reading_is_not_written_again(tmp_path: Path) -> None:
    spools, span = Spools(Folder(tmp_path), 1000, room_seconds=0.0), ByteRange(0, 4)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        spools.begin(span, may_reuse_file=True) as slow,
    ):
        os.write(slow.descriptor, b"slow")
        slow.note_written(4)
        connections = Connections("http", *silent.getsockname())
        request = Request("PUT", "/", {"content-length": "4"}, slow.slice(span), idle_seconds=0.1)
        with pytest.raises(StoreUnreachable):
            connections.ask(request, time.monotonic() + 60)
    with spools.begin(span, may_reuse_file=True) as next_one:
        assert os.fstat(next_one.descriptor).st_size == 0


def test_no_bytes_are_sent_that_an_earlier_spool_has_left_in_a_file(tmp_path: Path) -> None:
    spools, span = Spools(Folder(tmp_path), 1000, room_seconds=0.0), ByteRange(0, 10)
    with spools.begin(span, may_reuse_file=True) as earlier:
        os.write(earlier.descriptor, bytes(10))
    with spools.begin(span, may_reuse_file=True) as spool:
        assert os.fstat(spool.descriptor).st_size == 10
        spool.note_written(4)
        assert spool.slice(ByteRange(0, 4)).length == 4
        with pytest.raises(SpoolTooShort):
            spool.slice(ByteRange(0, 5))
        spool.begin_again(4)
        with pytest.raises(SpoolTooShort):
            spool.slice(ByteRange(4, 5))


def test_room_may_lie_in_several_places(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    first, second, third, late = (Room(folder, 1000) for _ in range(4))
    for room, count in ((first, 400), (second, 300), (third, 300)):
        assert room.grow(count)
    assert not late.grow(1)
    second.close()
    first.shrink(100)
    assert not late.grow(601)
    assert late.grow(500)
    assert late.grow(100)
    assert not late.grow(1)
    assert (first.length, late.length) == (100, 600)
    for room in (first, third, late):
        room.close()


def test_slow_clients_keep_no_room_for_bytes_that_have_not_come(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    told = list[ByteRange]()

    def trickle(store: BucketStore, source: StallingSource, cell: int) -> None:
        span = ByteRange(cell * CELL, (cell + 1) * CELL)
        with store.staging.writer(KEY, span, LIMITS) as writer:
            writer.write(span, source, ignore)

    with store_in(bucket, catalog, tmp_path) as store, ThreadPoolExecutor() as pool:
        slow = [
            StallingSource(pattern(cell * CELL, (cell + 1) * CELL), before=10)
            for cell in range(1, 4)
        ]
        writes = [pool.submit(trickle, store, each, cell) for cell, each in enumerate(slow, 1)]
        try:
            assert all(each.is_stalled.wait(60) for each in slow)
            write(store, 0, CELL, told)
        finally:
            for each in slow:
                each.goes_on.set()
        for done in writes:
            done.result()
        write(store, 4 * CELL, LENGTH, told)
        assert 0 in {part.cell for part in catalog.parts(KEY)}
        store.library.publish(KEY, LENGTH)
        assert content(store, KEY) == pattern(0, LENGTH)


def test_a_body_that_gets_no_more_room_is_stored_piece_by_piece(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    told = list[ByteRange]()
    with store_in(bucket, catalog, tmp_path, room_seconds=0.0) as store:
        with store.cells.spools.open(ByteRange(0, CAPACITY - 2 * FIRST_BYTES)):
            write(store, 0, CELL, told)
            spans = [piece.span for piece in catalog.pieces(KEY, 0)]
            assert len(spans) == 3
            assert all(span.length <= 2 * FIRST_BYTES for span in spans)
        for start in range(CELL, LENGTH, CELL):
            write(store, start, start + CELL, told)
        assert RangeSet.of(told).total < LENGTH, "the end of each request is told by its caller"
        store.library.publish(KEY, LENGTH)
        assert content(store, KEY) == pattern(0, LENGTH)


def test_a_body_that_may_prove_wrong_and_gets_no_more_room_is_refused(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    span, told = ByteRange(0, CELL), list[ByteRange]()
    with store_in(bucket, catalog, tmp_path, room_seconds=0.0) as store:
        for is_refused in (True, False):
            source = PiecesSource(pattern(0, CELL), is_verified_at_end=True)
            with ExitStack() as stack:
                writer = stack.enter_context(store.staging.writer(KEY, span, LIMITS))
                if is_refused:
                    left = ByteRange(0, CAPACITY - 2 * FIRST_BYTES)
                    stack.enter_context(store.cells.spools.open(left))
                    stack.enter_context(pytest.raises(ServerBusy))
                assert writer.write(span, source, told.append) == CELL
                writer.finish(source)
            assert len(catalog.parts(KEY)) == (0 if is_refused else 1)
        assert (told, catalog.pieces(KEY, 0)) == ([], [])
        with store.cells.spools.open(ByteRange(0, CAPACITY)):
            pass  # All room is free again.


def test_a_full_cell_is_left_in_pieces_while_its_request_has_the_room(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    """Waiting for itself would take an hour."""
    with store_in(*(bucket, catalog, tmp_path), room_seconds=3600.0) as store:
        write(store, 0, CELL // 4, [])
        write(store, CELL // 4, CELL, [])
        assert catalog.parts(KEY) == []
        write(store, CELL, LENGTH, [])
        store.library.publish(KEY, LENGTH)
        assert content(store, KEY) == pattern(0, LENGTH)


def test_a_slow_body_gives_room_to_others_once_its_bytes_are_stored(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path
) -> None:
    wanted = ByteRange(0, CAPACITY - FIRST_BYTES)
    got, is_given = list[Future[Spool]](), Event()
    with (
        store_in(*(bucket, catalog, tmp_path), checkpoint_seconds=0.0, room_seconds=120.0) as store,
        closing(Room(Folder(tmp_path), CAPACITY)) as room,
        ThreadPoolExecutor() as pool,
    ):

        def ask_and_wait(told: ByteRange) -> None:
            if told.start > span.start and not got:  # It has grown by now.
                got.append(pool.submit(store.cells.spools.open, wanted))
                wait_until(lambda: room.is_wanted, "somebody waits for room", seconds=30)
            elif got and not is_given.is_set():
                got[0].result().close()
                is_given.set()

        span = ByteRange(FIRST_BYTES // 2, CELL)
        write(store, 0, span.start, [])
        with store.staging.writer(KEY, span, LIMITS) as writer:
            body_source = body(span.start, span.end, FIRST_BYTES)
            assert writer.write(span, body_source, ask_and_wait) == CELL
        assert is_given.is_set(), "it was given while the body was still coming"
        write(store, CELL, LENGTH, [])
        store.library.publish(KEY, LENGTH)
        assert content(store, KEY) == pattern(0, LENGTH)
