"""The store in a bucket: what differs from a folder."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.cells import Piece, Stamp
from app.domain.errors import BodyTruncated
from app.domain.ranges import ByteRange
from app.records.bucket import BucketCatalog
from app.storage.base import BytesLost, Store
from app.storage.s3.bucket import Bucket
from app.storage.s3.store import BucketStore
from tests.records.making import new_sqlite
from tests.storage.conftest import InBucket
from tests.storage.sources import body, pattern
from tests.storage.stores import KEY, LIMITS, SPOOL_BYTES, content, ignore

MIB = 1024 * 1024
CELL = 20 * MIB


@pytest.fixture
def store(in_bucket: InBucket) -> Store:
    return in_bucket.store


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

    overtake: Callable[[], None]

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
    assert catalog.place(KEY, part.cell, part.number, part.length, stamp)


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
