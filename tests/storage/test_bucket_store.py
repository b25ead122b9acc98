"""The store in a bucket: what differs from a folder."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Engine, event

from app.core.cells import Piece, Stamp
from app.core.errors import BodyTruncated, NoRoom, ServerBusy
from app.core.ranges import ByteRange, RangeSet
from app.ingest.copy import BLOCK_BYTES
from app.storage.base import BytesLost, Store
from app.storage.local.folder import Folder
from app.storage.s3.address import BucketAddress
from app.storage.s3.assembly import Assembly
from app.storage.s3.bucket import Bucket
from app.storage.s3.caller import S3Caller
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.connections import Answer, Connections, Request
from app.storage.s3.contents import SpoolSlice
from app.storage.s3.inspection import BucketInspection
from app.storage.s3.store import BucketStore
from tests.records.making import new_sqlite
from tests.storage.conftest import InBucket
from tests.storage.sources import PiecesSource, body, pattern
from tests.storage.stores import KEY, LIMITS, OTHER_KEY, SPOOL_BYTES, bucket_store, content, ignore

MIB = 1024 * 1024
CELL = 20 * MIB


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


def write(store: Store, start: int, end: int) -> None:
    span = ByteRange(start, end)
    with store.staging.writer(KEY, span, LIMITS) as writer:
        assert writer.write(span, body(start, end), ignore) == end


@pytest.mark.parametrize("length", [0, 1, 3 * MIB])
def test_a_short_file_is_one_object(store: Store, bucket: Bucket, length: int) -> None:
    store.staging.reserve(KEY, length)
    if length:
        write(store, 0, length)
    store.library.publish(KEY, length)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)
    assert [each.length for each in bucket.list_objects()] == [length]


def test_a_long_file_arrives_in_any_order(in_bucket: InBucket, bucket: Bucket) -> None:
    store = in_bucket.store
    length = 2 * CELL + 5 * MIB
    store.staging.reserve(KEY, length)
    write(store, CELL, 2 * CELL)
    write(store, 2 * CELL + MIB, length)
    write(store, 7 * MIB, CELL)
    write(store, 2 * CELL, 2 * CELL + MIB)
    write(store, 0, 7 * MIB)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)
    in_bucket.store.inspection.sweep()
    assert [each.length for each in bucket.list_objects()] == [length]
    assert list(bucket.list_multiparts()) == []
    store.library.delete(KEY)
    assert list(bucket.list_objects()) == []


def test_what_had_arrived_before_a_cut_is_kept(store: Store) -> None:
    length, told = CELL + 10, list[ByteRange]()
    store.staging.reserve(KEY, length)
    span = ByteRange(0, length)
    with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(BodyTruncated):
        writer.write(span, body(0, length, cut_at=CELL + 3), told.append)
    assert told == [ByteRange(0, CELL), ByteRange(CELL, CELL + 3)]
    write(store, CELL + 3, length)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)


class OvertakenCatalog(BucketCatalog):
    """Lets another request finish the file once its parts have been looked at."""

    overtake: Callable[[], object]

    def loose(self, key: str) -> list[Piece]:
        found = super().loose(key)
        self.overtake()
        return found


def test_two_requests_publish_the_same_file(
    in_bucket: InBucket, bucket: Bucket, tmp_path: Path
) -> None:
    store, length = in_bucket.store, CELL + 10
    store.staging.reserve(KEY, length)
    write(store, 0, length)
    with closing(new_sqlite(tmp_path / "sluice.db")) as database:
        catalog = OvertakenCatalog(database)
        catalog.overtake = lambda: store.library.publish(KEY, length)
        late = BucketStore(bucket, catalog, tmp_path / "late", spool_bytes=SPOOL_BYTES)
        late.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)


def renote(in_bucket: InBucket, *, etag: str = "", crc32c: str = "") -> None:
    """Have the catalog say something else of the first cell's part."""
    catalog = in_bucket.store.cells.catalog
    part = catalog.parts(KEY)[0]
    stamp = Stamp(etag or part.stamp.etag, crc32c or part.stamp.crc32c)
    assert catalog.place(KEY, [replace(part, stamp=stamp)])


def test_a_part_that_was_sent_again_may_have_another_etag(in_bucket: InBucket) -> None:
    store, length = in_bucket.store, CELL + 10
    store.staging.reserve(KEY, length)
    write(store, 0, length)
    renote(in_bucket, etag="0" * 32)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)


def test_a_part_with_other_bytes_than_were_noted_is_lost(in_bucket: InBucket) -> None:
    store, length = in_bucket.store, CELL + 10
    store.staging.reserve(KEY, length)
    write(store, 0, length)
    renote(in_bucket, etag="0" * 32, crc32c="AAAAAA==")
    with pytest.raises(BytesLost):
        store.library.publish(KEY, length)


def test_bytes_that_may_still_prove_wrong_are_stored_once_they_have_not(
    bucket: Bucket, tmp_path: Path
) -> None:
    length, told = CELL + 10, list[ByteRange]()
    with bucket_store(bucket, tmp_path) as store:
        store.staging.reserve(KEY, length)
        span = ByteRange(0, length)
        source = PiecesSource(pattern(0, length), is_verified_at_end=True)
        with store.staging.writer(KEY, span, LIMITS) as writer:
            assert writer.write(span, source, told.append) == length
            assert list(bucket.list_objects()) == []
            assert store.cells.catalog.parts(KEY) == []
            writer.finish(source)
        assert told == []
        store.library.publish(KEY, length)
        assert content(store, KEY) == pattern(0, length)


def test_more_unproven_bytes_than_spools_may_hold_are_refused_unread(
    bucket: Bucket, tmp_path: Path
) -> None:
    with bucket_store(bucket, tmp_path, spool_bytes=1000) as store:
        store.staging.reserve(KEY, 1001)
        span, source = ByteRange(0, 1001), PiecesSource(pattern(0, 1001), is_verified_at_end=True)
        with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(NoRoom):
            writer.write(span, source, ignore)
        assert source.position == 0


def test_a_store_that_is_down_acknowledges_nothing_and_frees_the_cell(
    in_bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, told = in_bucket.store, list[ByteRange]()
    store.staging.reserve(KEY, 2 * CELL)
    span = ByteRange(0, CELL)

    def fail(*_: object) -> None:
        raise ServerBusy("The object store does not answer in time.")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "upload_part", fail)
        with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(ServerBusy):
            writer.write(span, body(0, CELL), told.append)
    assert told == []
    write(store, 0, CELL)
    assert [part.cell for part in in_bucket.store.cells.catalog.parts(KEY)] == [0]


def test_a_slow_body_is_stored_now_and_then(bucket: Bucket, tmp_path: Path) -> None:
    with closing(new_sqlite(tmp_path / "sluice.db")) as database:
        catalog = BucketCatalog(database)
        store = BucketStore(
            bucket, catalog, tmp_path, spool_bytes=SPOOL_BYTES, checkpoint_seconds=0.0
        )
        store.staging.reserve(KEY, 3 * BLOCK_BYTES)
        span, told = ByteRange(0, 3 * BLOCK_BYTES), list[ByteRange]()
        with store.staging.writer(KEY, span, LIMITS) as writer:
            writer.write(span, body(0, span.end), told.append)
        assert RangeSet.of(told).prefix_end == span.end
        assert len(told) == 3
        store.library.publish(KEY, span.end)
        assert content(store, KEY) == pattern(0, span.end)


def test_bytes_that_could_not_be_stored_are_not_sent_a_second_time(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list[str]()

    def fail(_: Bucket, name: str, _body: SpoolSlice) -> Stamp:
        names.append(name)
        raise ServerBusy("The object store does not answer in time.")

    with closing(new_sqlite(tmp_path / "sluice.db")) as database:
        catalog, told = BucketCatalog(database), list[ByteRange]()
        store = BucketStore(
            bucket, catalog, tmp_path, spool_bytes=SPOOL_BYTES, checkpoint_seconds=0.0
        )
        store.staging.reserve(KEY, 3 * BLOCK_BYTES)
        span = ByteRange(0, 3 * BLOCK_BYTES)
        monkeypatch.setattr(Bucket, "put_object", fail)
        with store.staging.writer(KEY, span, LIMITS) as writer, pytest.raises(ServerBusy):
            writer.write(span, body(0, span.end), told.append)
    assert (len(names), told) == (1, [])


def test_a_part_costs_the_same_however_many_there_are(in_bucket: InBucket) -> None:
    """In statements: 10,000 parts would take a while."""
    store, found = in_bucket.store, list[list[str]]()
    store.staging.reserve(KEY, 4 * CELL)
    for number in range(4):
        with counted_statements() as statements:
            write(store, number * CELL, (number + 1) * CELL)
        found.append(statements)
    assert found[1:] == [found[1]] * 3
    assert len(found[1]) == 3, "the file, the claim, and the part"


def test_a_whole_file_of_unknown_length_becomes_parts(in_bucket: InBucket) -> None:
    store, length = in_bucket.store, CELL + 12_345
    source = PiecesSource(pattern(0, length), is_told=False)
    assert store.staging.receive(KEY, source, 1 << 30, LIMITS) == length
    store.staging.sync([KEY])
    with store.staging.open_complete(KEY, length) as file:
        assert file.read(1000) == pattern(0, 1000)
    assert in_bucket.published() == set(), "it stays hidden"
    store.library.publish_all([(KEY, length)])
    assert content(store, KEY) == pattern(0, length)


def test_short_files_are_sent_to_their_end_before_one_of_them_fails(
    in_bucket: InBucket, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hears of it closes the spools, and their descriptors become those of others."""
    staging, put, has_failed = in_bucket.store.staging, Bucket.put_object, Event()
    names = list[str]()

    def fail_first(own: Bucket, name: str, sent: SpoolSlice) -> Stamp:
        names.append(name)
        if KEY in name and not has_failed.is_set():
            has_failed.set()
            raise ServerBusy("The object store does not answer in time.")
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


def test_what_is_stored_is_compared_with_what_came(in_bucket: InBucket, tmp_path: Path) -> None:
    store, length = in_bucket.store, CELL + 1000
    store.staging.reserve(KEY, 2 * CELL)
    write(store, 0, length)

    def has(start: int, found: bytes) -> bool:
        (tmp_path / "ours").write_bytes(found)
        with FileIO(tmp_path / "ours") as ours:
            return store.staging.contains(KEY, start, ours, len(found))

    right = pattern(0, length)
    assert has(0, right)
    assert has(CELL, right[CELL:])
    assert not has(0, right[:-1] + b"?")
    assert not has(0, b"?" + right[1:])
    assert has(10, right[10:20]), "a part cannot be read, so it counts as equal"
    assert has(CELL - 10, right[CELL - 10 :])
    assert not has(CELL - 10, right[CELL - 10 : -1] + b"?"), "the piece after it can be read"


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
        store.staging.reserve(KEY, CELL + MIB)
        write(store, 0, 3 * MIB)
        write(store, 3 * MIB, 4 * MIB)
        connections.asked.clear()
        with store.staging.open(KEY) as stored:
            found = [stored.read(64 * 1024) for _ in range(4 * 16)]
    assert b"".join(found) == pattern(0, 4 * MIB)
    assert connections.asked.count("GET") <= 8


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
            Assembly(store.cells),
            store.cells.catalog,
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
