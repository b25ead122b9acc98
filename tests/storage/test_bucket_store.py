"""The store in a bucket: what differs from a folder."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from io import RawIOBase
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import requests
from sqlalchemy import Engine, event

from app.core.errors import BodyTruncated, ServerBusy, StorageFailed
from app.core.pieces import (
    MIB,
    PIECE_BYTES,
    SMALLEST_PART_BYTES,
    Checksums,
    Part,
    Piece,
    PromisedCell,
)
from app.core.ranges import ByteRange, RangeSet
from app.ingest.copy import BLOCK_BYTES
from app.ingest.source import Watch, no_watch
from app.storage.base import BytesLost, Store
from app.storage.local.folder import Folder
from app.storage.local.range_lock import try_lock
from app.storage.s3 import assembly, range_writer
from app.storage.s3.address import BucketAddress
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import S3Caller
from app.storage.s3.catalog import READ_FOR, BucketCatalog
from app.storage.s3.connections import Answer, Connections, Request
from app.storage.s3.contents import SpoolSlice, crc32c_of
from app.storage.s3.inspection import BucketInspection
from app.storage.s3.store import BucketStore
from tests.storage.conftest import InBucket
from tests.storage.nodes import PIECE, Clock, Node
from tests.storage.sources import PiecesSource, body, pattern
from tests.storage.stores import KEY, LIMITS, OTHER_KEY, bucket_store, content, fill, ignore, record
from tests.waiting import wait_until

LONG = PIECE_BYTES + 10


@pytest.fixture
def store(in_bucket: InBucket) -> Store:
    return in_bucket.store


@contextmanager
def counted_statements() -> Iterator[list[str]]:
    """Collects the SQL statements of all threads while the block runs."""
    found = list[str]()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def pieces_of(store: BucketStore) -> list[ByteRange]:
    found, _ = store.pieces.catalog.pieces(KEY, ByteRange(0, 1 << 40))
    return [piece.span for piece in found]


# ---- writing and publishing ----------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 3 * MIB])
def test_a_short_file_is_one_object(store: Store, bucket: Bucket, length: int) -> None:
    store.staging.reserve(KEY, length)
    if length:
        fill(store, KEY, 0, length)
    store.library.publish(KEY, length)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)
    assert [each.length for each in bucket.list_objects()] == [length]


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("seed", range(4))
def test_a_long_file_arrives_in_any_order_and_partly_twice(
    in_bucket: InBucket, bucket: Bucket, seed: int
) -> None:
    store, rng, length = in_bucket.store, random.Random(seed), 4 * PIECE + 1000
    store.staging.reserve(KEY, length)
    cuts = [0, *sorted(rng.sample(range(length), 12)), length]
    spans = [ByteRange(start, end) for start, end in pairwise(cuts)]
    rng.shuffle(spans)
    for span in spans:
        fill(store, KEY, max(0, span.start - rng.choice([0, 1000])), span.end)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)
    store.inspection.collect_garbage()
    assert list(bucket.list_multiparts()) == []
    store.library.delete(KEY)
    assert list(bucket.list_objects("files/")) == []


def test_old_lock_files_of_a_node_are_removed_unless_a_writer_holds_them(
    in_bucket: InBucket,
) -> None:
    inspection = in_bucket.store.inspection
    locks = inspection.locks
    for name in ("young", "old", "held"):
        os.close(locks.open(name, os.O_RDWR | os.O_CREAT))
        if name != "young":
            os.utime(locks.path / name, (0, 0))
    held = locks.open("held", os.O_RDWR)
    assert try_lock(held, ByteRange(0, 10))
    inspection.remove_leftovers()
    os.close(held)
    assert {entry.name for entry in locks.entries()} == {"young", "held"}


def test_what_had_arrived_before_a_cut_is_kept(store: Store) -> None:
    length, told = LONG, list[ByteRange]()
    store.staging.reserve(KEY, length)
    span = ByteRange(0, length)
    with store.staging.writer(KEY, span, LIMITS) as writer:

        def tell(stored: ByteRange) -> None:
            record(store, writer)
            told.append(stored)

        with pytest.raises(BodyTruncated):
            writer.write(span, body(0, length, cut_at=length - 3), tell)
    assert RangeSet.of(told) == RangeSet.of([ByteRange(0, length - 3)])
    fill(store, KEY, length - 3, length)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)


def test_bytes_that_are_not_recorded_are_not_part_of_the_file(
    in_bucket: InBucket, bucket: Bucket
) -> None:
    store = in_bucket.store
    store.staging.reserve(KEY, 10)
    with store.staging.writer(KEY, ByteRange(0, 10), LIMITS) as writer:
        writer.write(ByteRange(0, 10), body(0, 10), ignore)
    assert [each.length for each in bucket.list_objects()] == [10]
    assert pieces_of(store) == []
    with pytest.raises(BytesLost):
        store.library.publish(KEY, 10)


@pytest.mark.usefixtures("short_pieces")
def test_a_file_with_missing_bytes_is_lost(store: Store) -> None:
    store.staging.reserve(KEY, 3 * PIECE)
    fill(store, KEY, 0, PIECE)
    fill(store, KEY, 2 * PIECE - 1, 3 * PIECE)
    with pytest.raises(BytesLost):
        store.library.publish(KEY, 3 * PIECE)
    fill(store, KEY, PIECE, 2 * PIECE - 1)
    store.library.publish(KEY, 3 * PIECE)
    assert content(store, KEY) == pattern(0, 3 * PIECE)


@pytest.mark.usefixtures("short_pieces")
def test_of_overlapping_pieces_the_first_recorded_stays(in_bucket: InBucket) -> None:
    store, length = in_bucket.store, 3 * PIECE
    store.staging.reserve(KEY, length)
    fill(store, KEY, PIECE - 1000, 2 * PIECE)
    other = bytes(length)
    for span in (ByteRange(0, PIECE), ByteRange(PIECE, length)):
        with store.staging.writer(KEY, span, LIMITS) as writer:
            writer.write(span, PiecesSource(other[span.start : span.end]), ignore)
            record(store, writer)
    wanted = bytes(PIECE - 1000) + pattern(PIECE - 1000, 2 * PIECE) + bytes(PIECE)
    with store.staging.open(KEY) as file:
        assert file.read() == wanted
    store.library.publish(KEY, length)
    assert content(store, KEY) == wanted


def test_two_requests_publish_the_same_file(store: Store) -> None:
    store.staging.reserve(KEY, LONG)
    fill(store, KEY, 0, LONG)
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(store.library.publish, KEY, LONG) for _ in range(4)]:
            done.result()
    assert content(store, KEY) == pattern(0, LONG)


def test_bytes_that_may_still_prove_wrong_are_stored_once_they_have_not(
    in_bucket: InBucket, bucket: Bucket
) -> None:
    told, span, store = list[ByteRange](), ByteRange(0, LONG), in_bucket.store
    store.staging.reserve(KEY, LONG)
    source = PiecesSource(pattern(0, LONG), is_verified_at_end=True)
    with store.staging.writer(KEY, span, LIMITS) as writer:
        assert writer.write(span, source, told.append) == LONG
        assert list(bucket.list_objects()) == []
        writer.finish(source)
        record(store, writer)
    assert told == []
    store.library.publish(KEY, LONG)
    assert content(store, KEY) == pattern(0, LONG)


def test_a_store_that_is_down_acknowledges_nothing(
    in_bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, told = in_bucket.store, list[ByteRange]()
    store.staging.reserve(KEY, LONG)
    span = ByteRange(0, LONG)

    def fail(*_: object) -> None:
        raise ServerBusy("The object store does not answer in time.")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put_object", fail)
        with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(ServerBusy):
            writer.write(span, body(0, LONG), told.append)
    assert (told, pieces_of(store)) == ([], [])
    fill(store, KEY, 0, LONG)
    store.library.publish(KEY, LONG)


@pytest.fixture
def impatient(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BucketStore:
    """A store with a checkpoint after each block, and a reserved file of three blocks."""
    monkeypatch.setattr(range_writer, "CHECKPOINT_SECONDS", 0.0)
    found = BucketStore(bucket, catalog, tmp_path)
    found.staging.reserve(KEY, 3 * BLOCK_BYTES)
    return found


def test_a_slow_body_is_stored_now_and_then(impatient: BucketStore) -> None:
    span, told = ByteRange(0, 3 * BLOCK_BYTES), list[ByteRange]()
    with impatient.staging.writer(KEY, span, LIMITS) as writer:

        def tell(stored: ByteRange) -> None:
            record(impatient, writer)
            told.append(stored)

        writer.write(span, body(0, span.end), tell)
    assert told == [
        ByteRange(start, start + BLOCK_BYTES) for start in range(0, span.end, BLOCK_BYTES)
    ]
    assert pieces_of(impatient) == told
    impatient.library.publish(KEY, span.end)
    assert content(impatient, KEY) == pattern(0, span.end)


def test_bytes_that_could_not_be_stored_are_not_sent_a_second_time(
    impatient: BucketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, told = list[str](), list[ByteRange]()

    def fail(_: Bucket, name: str, _body: SpoolSlice) -> Checksums:
        names.append(name)
        raise ServerBusy("The object store does not answer in time.")

    span = ByteRange(0, 3 * BLOCK_BYTES)
    monkeypatch.setattr(Bucket, "put_object", fail)
    with impatient.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(ServerBusy):
        writer.write(span, body(0, span.end), told.append)
    assert (len(names), told) == (1, [])


class TickingSource(PiecesSource):
    """A body verified at its end; before each block, something happens."""

    def __init__(self, data: bytes, happen: Callable[[], object]) -> None:
        super().__init__(data, is_verified_at_end=True)
        self._happen = happen

    def readinto(self, buffer: memoryview, /) -> int | None:
        self._happen()
        return super().readinto(buffer)

    def finish(self, _watch: Watch = no_watch, /) -> None:
        self._happen()


def test_a_file_is_not_idle_while_bytes_arrive_that_are_verified_at_their_end(
    impatient: BucketStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is recorded for hours, and an upload through a link expires without bytes."""
    idle, put, step, span = list[float](), Bucket.put_object, 600.0, ByteRange(0, LONG)

    def wait() -> None:
        idle.extend(file.idle_seconds for file in impatient.inspection.staged())
        clock.now += timedelta(seconds=step)

    def slow_put(own: Bucket, name: str, sent: SpoolSlice) -> Checksums:
        wait()
        return put(own, name, sent)

    monkeypatch.setattr(Bucket, "put_object", slow_put)
    source = TickingSource(pattern(0, LONG), wait)
    with impatient.staging.writer(KEY, span, LIMITS) as writer:
        writer.write(span, source, ignore)
        writer.finish(source)
        record(impatient, writer)
    assert len(idle) > LONG // BLOCK_BYTES
    assert max(idle) == step
    assert RangeSet.of(pieces_of(impatient)).covers(span)


def test_a_whole_file_of_unknown_length_becomes_pieces(in_bucket: InBucket) -> None:
    store, length = in_bucket.store, LONG
    source = PiecesSource(pattern(0, length), is_told=False)
    assert store.staging.receive(KEY, source, 1 << 30, LIMITS) == length
    store.staging.sync([KEY])
    with store.staging.open(KEY) as file:
        assert file.read() == pattern(0, length)
    assert in_bucket.published() == set(), "it stays hidden"
    store.library.publish_all([(KEY, length)])
    assert content(store, KEY) == pattern(0, length)


@pytest.mark.parametrize("length", [PIECE_BYTES - 1, PIECE_BYTES])
def test_a_whole_file_as_long_as_a_piece(store: Store, length: int) -> None:
    source = PiecesSource(pattern(0, length), is_told=False)
    assert store.staging.receive(KEY, source, 1 << 30, LIMITS) == length
    store.staging.sync([KEY])
    store.library.publish_all([(KEY, length)])
    assert content(store, KEY) == pattern(0, length)


def test_short_files_are_sent_to_their_end_before_one_of_them_fails(
    in_bucket: InBucket, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller then closes the spools, and their descriptors become those of others."""
    staging, put = in_bucket.store.staging, Bucket.put_object
    has_begun, has_failed = Event(), Event()
    names = list[str]()

    def fail_first(own: Bucket, name: str, sent: SpoolSlice) -> Checksums:
        names.append(name)
        if KEY in name and not has_failed.is_set():
            assert has_begun.wait(30)
            has_failed.set()
            raise ServerBusy("The object store does not answer in time.")
        has_begun.set()
        assert has_failed.wait(30)
        return put(own, name, sent)

    for key in (KEY, OTHER_KEY):
        staging.receive(key, body(0, 5000), 5000, LIMITS)
    monkeypatch.setattr(Bucket, "put_object", fail_first)
    with pytest.raises(ServerBusy):
        staging.sync([KEY, OTHER_KEY])
    assert len(list(bucket.list_objects())) == 1, "the other is stored by now"
    staging.sync([KEY, OTHER_KEY])
    assert {each.name for each in bucket.list_objects()} == set(names)
    assert len(names) == 3, "one of them twice, under the same name"


# ---- parts ---------------------------------------------------------------------------------------


class CountedBucket:
    """A bucket that counts the calls of each method."""

    def __init__(self, real: Bucket, calls: Counter[str]) -> None:
        self._real = real
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._real, name)

    def within(self, seconds: float) -> CountedBucket:
        return CountedBucket(self._real.within(seconds), self.calls)


@pytest.fixture
def counted(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path, short_pieces: None
) -> tuple[BucketStore, Counter[str]]:
    """A store with short pieces, and what it asks the bucket."""
    own = CountedBucket(bucket, Counter())
    return BucketStore(own, catalog, tmp_path), own.calls  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answered", "is_listed", "uploads"),
    [("AAAAAA==", True, 2), ("", False, 2), ("", True, 0)],
    ids=["another checksum", "none", "none but in the list of parts"],
)
def test_a_copy_that_does_not_prove_its_bytes_is_read_and_uploaded(
    counted: tuple[BucketStore, Counter[str]],
    monkeypatch: pytest.MonkeyPatch,
    answered: str,
    is_listed: bool,
    uploads: int,
) -> None:
    store, calls = counted
    copy = Bucket.copy_part
    monkeypatch.setattr(Bucket, "copy_part", lambda *args: replace(copy(*args), crc32c=answered))
    if not is_listed:
        monkeypatch.setattr(Bucket, "list_parts", lambda *_args, **_options: iter(()))
    store.staging.reserve(KEY, 2 * PIECE)
    fill(store, KEY, 0, 2 * PIECE)
    store.library.publish(KEY, 2 * PIECE)
    assert (calls["copy_part"], calls["upload_part"]) == (2, uploads)
    assert content(store, KEY) == pattern(0, 2 * PIECE)


def test_a_copy_that_proves_its_bytes_is_not_read(
    counted: tuple[BucketStore, Counter[str]],
) -> None:
    store, calls = counted
    length = PIECE + SMALLEST_PART_BYTES
    store.staging.reserve(KEY, length)
    fill(store, KEY, 0, SMALLEST_PART_BYTES)
    fill(store, KEY, SMALLEST_PART_BYTES, length)
    calls.clear()
    store.library.publish(KEY, length)
    assert (calls["copy_part"], calls["upload_part"], calls["open"]) == (2, 0, 0)


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("is_short", [True, False], ids=["collected", "copied"])
def test_a_piece_that_is_not_what_was_stored_never_becomes_part_of_the_file(
    in_bucket: InBucket, bucket: Bucket, *, is_short: bool
) -> None:
    store, end = in_bucket.store, 1000 if is_short else PIECE
    store.staging.reserve(KEY, PIECE + 50)
    fill(store, KEY, 0, end)
    [damaged] = bucket.list_objects("pieces/")
    fill(store, KEY, end, PIECE + 50)
    bucket.put_object(damaged.name, pattern(1, end + 1))
    with pytest.raises(StorageFailed):
        store.library.publish(KEY, PIECE + 50)
    assert in_bucket.published() == set()
    bucket.put_object(damaged.name, pattern(0, end))
    store.library.publish(KEY, PIECE + 50)
    assert content(store, KEY) == pattern(0, PIECE + 50)


def test_parts_are_made_while_the_file_arrives(
    counted: tuple[BucketStore, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "EARLY_BYTES", 2 * PIECE)
    store, calls = counted
    catalog, length = store.pieces.catalog, 8 * PIECE + 10
    store.staging.reserve(KEY, length)
    fill(store, KEY, 0, 4 * PIECE)
    wait_until(lambda: len(catalog.parts(KEY)) == 4, "parts of the bytes so far", seconds=60)
    fill(store, KEY, 5 * PIECE, 7 * PIECE)
    store.library.assembly._early.submit(int).result(60)
    assert len(catalog.parts(KEY)) == 4, "nothing beyond a gap"
    fill(store, KEY, 4 * PIECE, 5 * PIECE)
    fill(store, KEY, 7 * PIECE, 8 * PIECE)
    wait_until(lambda: len(catalog.parts(KEY)) == 8, "parts of all but the last", seconds=60)
    fill(store, KEY, 8 * PIECE, length)
    store.library.assembly._early.submit(int).result(60)
    calls.clear()
    store.library.publish(KEY, length)
    made = calls["copy_part"] + calls["upload_part"]
    assert (made, calls["create_named_multipart"]) == (1, 0), "only the rest"
    assert content(store, KEY) == pattern(0, length)


def test_parts_are_made_of_what_clients_send_to_the_bucket(
    counted: tuple[BucketStore, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "EARLY_BYTES", 2 * PIECE)
    store, _ = counted
    catalog, cells = store.pieces.catalog, store.direct
    store.staging.reserve(KEY, 5 * PIECE)
    for start in range(0, 5 * PIECE, PIECE):
        sent = pattern(start, start + PIECE)
        promised = PromisedCell(ByteRange(start, start + PIECE), crc32c_of(sent))
        [offer] = cells.offers(KEY, [promised])
        assert offer.target is not None
        put = requests.put(offer.target.url, sent, headers=offer.target.headers, timeout=60)
        assert put.status_code == 200
        [(_, _, rows)] = cells.accept(KEY, [promised])
        with catalog.database.write() as connection:
            rows(connection)
    wait_until(lambda: len(catalog.parts(KEY)) >= 2, "parts of the cells so far", seconds=60)
    store.library.publish(KEY, 5 * PIECE)
    assert content(store, KEY) == pattern(0, 5 * PIECE)


def test_a_process_that_ends_does_not_wait_for_parts_of_unfinished_files() -> None:
    script = (
        "import time\n"
        "from app.storage.s3.parts import DaemonThreads\n"
        "early, making = DaemonThreads(1), DaemonThreads(4)\n"
        "early.submit(lambda: making.submit(time.sleep, 600).result())\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.usefixtures("short_pieces")
def test_a_file_of_unknown_length_gets_no_parts_before_its_end(
    in_bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "EARLY_BYTES", PIECE)
    store = in_bucket.store
    store.staging.reserve(KEY, 0)
    fill(store, KEY, 0, 3 * PIECE)
    store.library.assembly._early.submit(int).result(60)
    assert store.pieces.catalog.parts(KEY) == []
    store.library.publish(KEY, 3 * PIECE)
    assert content(store, KEY) == pattern(0, 3 * PIECE)


def test_a_chunk_costs_the_same_however_many_there_are(in_bucket: InBucket) -> None:
    """In statements: 10,000 chunks would take a while."""
    store, found = in_bucket.store, list[list[str]]()
    store.staging.reserve(KEY, 400)
    for start in range(0, 400, 100):
        with counted_statements() as statements:
            fill(store, KEY, start, start + 100)
        found.append(statements)
    assert found[1:] == [found[1]] * 3
    kinds = [statement.split()[0] for statement in found[1]]
    assert [kind for kind in kinds if kind not in {"BEGIN", "COMMIT"}] == [
        *("SELECT", "INSERT"),
        *("DELETE", "INSERT"),
    ], "the file and the announcement; then, in the transaction of the record, the row"


@pytest.mark.usefixtures("short_pieces")
def test_one_more_part_reads_the_rows_of_few_pieces(
    bucket: Bucket, catalog: BucketCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, length, found = BucketStore(bucket, catalog, tmp_path), 5000 * PIECE, list[int]()
    lookup = catalog.pieces

    def counted(key: str, span: ByteRange) -> tuple[list[Piece], int]:
        pieces, end = lookup(key, span)
        found.append(len(pieces))
        return pieces, end

    store.staging.reserve(KEY, length)
    add_rows(catalog, 3000)
    assert catalog.lease(KEY, "token", 60)
    done = [Part(number, number * PIECE, Checksums("", "")) for number in range(1, 2999)]
    catalog.add_parts(KEY, "token", done)
    catalog.release(KEY, "token")
    monkeypatch.setattr(catalog, "pieces", counted)
    monkeypatch.setattr(Bucket, "copy_part", lambda *_: Checksums("none", ""))
    monkeypatch.setattr(Bucket, "list_parts", lambda *_, **__: iter([]))
    store.library.assembly._make_early_parts(KEY)
    assert [part.number for part in catalog.parts(KEY)][2998:] == [2999, 3000]
    assert sum(found) == 2


def add_rows(catalog: BucketCatalog, count: int) -> None:
    """Rows of pieces, without their objects."""
    rows = [
        Piece(0, ByteRange(number * PIECE, (number + 1) * PIECE), f"pieces/{number}", "")
        for number in range(count)
    ]
    for piece in rows:
        catalog.announce(KEY, piece.name)
    catalog.add_alone(KEY, rows)


# ---- reading while a file arrives ----------------------------------------------------------------


def read_all(file: RawIOBase, count: int) -> bytes:
    """The next `count` bytes, or all up to the end; one read may return fewer."""
    found = b""
    while more := file.read(count - len(found)):
        found += more
    return found


def test_missing_bytes_are_read_as_zeros(store: Store) -> None:
    store.staging.reserve(KEY, 1000)
    fill(store, KEY, 300, 400)
    fill(store, KEY, 600, 700)
    wanted = bytes(300) + pattern(300, 400) + bytes(200) + pattern(600, 700) + bytes(300)
    with store.staging.open(KEY) as file:
        assert file.read() == wanted
        for start in (0, 299, 300, 350, 399, 400, 650, 999, 1000):
            file.seek(start)
            assert read_all(file, 200) == wanted[start : start + 200]
        assert file.seek(-10, os.SEEK_END) == 990
        assert file.read() == bytes(10)


def test_a_file_of_unknown_length_ends_with_its_last_piece(store: Store) -> None:
    store.staging.reserve(KEY, 0)
    fill(store, KEY, 0, 500)
    with store.staging.open(KEY) as file:
        assert file.read() == pattern(0, 500)


def test_a_file_of_unknown_length_can_become_one_object_before_it_is_read(store: Store) -> None:
    store.staging.reserve(KEY, 0)
    fill(store, KEY, 0, 500)
    fill(store, KEY, 500, 900)
    with store.staging.open(KEY) as file:
        store.library.publish(KEY, 900)
        assert file.read() == pattern(0, 900)


def test_a_file_that_is_removed_while_it_is_published_is_lost_bytes(
    store: BucketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = store.pieces.catalog
    catalog.add_whole([(KEY, "files/whole", 500)])
    publish = catalog.publish

    def remove_first(keys: list[str]) -> int:
        store.staging.remove(KEY)
        return publish(keys)

    monkeypatch.setattr(catalog, "publish", remove_first)
    with pytest.raises(BytesLost):
        store.library.publish(KEY, 500)


def test_bytes_that_arrive_are_read_by_a_reader_that_is_open(store: Store) -> None:
    store.staging.reserve(KEY, 300)
    fill(store, KEY, 0, 100)
    with store.staging.open(KEY) as file:
        assert read_all(file, 300) == pattern(0, 100) + bytes(200)
        fill(store, KEY, 100, 250)
        file.seek(100)
        assert read_all(file, 200) == pattern(100, 250) + bytes(50)


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("end", [100, 3 * PIECE], ids=["one piece", "several"])
def test_a_reader_goes_on_after_its_file_became_one_object(
    bucket: Bucket, catalog: BucketCatalog, clock: Clock, tmp_path: Path, end: int
) -> None:
    """At once, and after its pieces are gone."""
    node = Node(bucket, catalog, tmp_path)
    node.store.staging.reserve(KEY, end)
    node.send([], 0, end)
    with node.store.staging.open(KEY) as file:
        found = file.read(10)
        node.store.library.publish(KEY, end)
        node.store.inspection.collect_garbage()
        found += file.read(end // 2)
        clock.now += READ_FOR
        node.store.inspection.collect_garbage()
        assert len(list(bucket.list_objects())) == 1
        while more := file.read(MIB):
            found += more
    assert found == pattern(0, end)


def test_a_reader_of_a_file_that_was_removed_hears_of_it(store: Store) -> None:
    store.staging.reserve(KEY, 200)
    fill(store, KEY, 0, 200)
    with store.staging.open(KEY) as file:
        store.staging.remove(KEY)
        with pytest.raises(BytesLost):
            file.read(100)


def test_pieces_beyond_a_page_of_rows_are_found(
    in_bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.s3.catalog.PAGE", 3)
    store = in_bucket.store
    store.staging.reserve(KEY, 1000)
    for start in random.Random(1).sample(range(0, 1000, 50), 20):
        fill(store, KEY, max(0, start - 20), start + 50)
    with store.staging.open(KEY) as file:
        assert file.read() == pattern(0, 1000)
    store.library.publish(KEY, 1000)
    assert content(store, KEY) == pattern(0, 1000)


class CountedConnections(Connections):
    """Those of a bucket, which know what was asked of it."""

    def __init__(self, address: BucketAddress) -> None:
        super().__init__(address.scheme, address.host, address.port)
        self.asked = list[str]()

    def ask(self, request: Request, deadline: float) -> Answer:
        """As the others do."""
        self.asked.append(request.method)
        return super().ask(request, deadline)


def test_a_file_that_is_still_received_is_read_with_few_requests(
    bucket: Bucket, tmp_path: Path
) -> None:
    connections = CountedConnections(bucket.caller.address)
    counted = Bucket(replace(bucket.caller, connections=connections))
    with bucket_store(counted, tmp_path) as store:
        store.staging.reserve(KEY, 20 * MIB)
        fill(store, KEY, 0, 3 * MIB)
        fill(store, KEY, 3 * MIB, 4 * MIB)
        connections.asked.clear()
        with store.staging.open(KEY) as stored:
            found = [stored.read(64 * 1024) for _ in range(4 * 16)]
    assert b"".join(found) == pattern(0, 4 * MIB)
    assert connections.asked.count("GET") <= 8


# ---- health --------------------------------------------------------------------------------------


class HangingBucket(Bucket):
    """Can be used once, and hangs from then on until it is told to answer."""

    def __init__(self, caller: S3Caller) -> None:
        super().__init__(caller)
        self.probes = 0
        self.hangs, self.may_answer = Event(), Event()

    def within(self, _seconds: float) -> Bucket:
        """With all the time there is."""
        return self

    def probe(self) -> None:
        """Find it usable at first."""
        self.probes += 1
        assert self.probes <= 2, "two ask at once"
        if self.probes == 2:
            self.hangs.set()
            assert self.may_answer.wait(60)
            raise ServerBusy("It hangs.")


def test_health_checks_do_not_all_wait_for_a_store_that_hangs(
    bucket: Bucket, tmp_path: Path
) -> None:
    hanging = HangingBucket(bucket.caller)
    with bucket_store(hanging, tmp_path) as store, ThreadPoolExecutor(1) as threads:
        inspection = BucketInspection(
            store.pieces.catalog,
            hanging,
            spools=Folder(tmp_path / "spools"),
            locks=Folder(tmp_path / "locks"),
            probed_every_seconds=0,
        )
        before = inspection.problems()
        waiting = threads.submit(inspection.problems)
        try:
            assert hanging.hangs.wait(60)
            assert inspection.problems() == before
        finally:
            hanging.may_answer.set()
        assert [problem.code for problem in waiting.result()] == [
            *(problem.code for problem in before),
            "bucket_unreachable",
        ]
