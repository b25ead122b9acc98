"""Growing reservations, and files made of others: on one file system and on two."""

import errno
import os
import threading
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from app.core.errors import NoRoom
from app.core.ranges import ByteRange
from app.storage.base import BytesLost, Store
from app.storage.local import folder, library
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from tests.s3_servers import S3Server, new_prefix
from tests.storage.conftest import Folders, InBucket, Place
from tests.storage.nodes import PIECE, Clock
from tests.storage.sources import body, pattern
from tests.storage.stores import (
    KEY,
    LIMITS,
    OTHER_KEY,
    bucket_at,
    content,
    fill,
    ignore,
    names,
    record,
    staged,
)

PARTS = [(f"{1:032x}", 100), (f"{2:032x}", 250), (f"{3:032x}", 650)]


def stage_parts(place: Place) -> None:
    """Stage parts with the bytes of the test's file, from its start."""
    stage_in(place.store, PARTS)


def stage_in(store: Store, parts: Sequence[tuple[str, int]]) -> None:
    position = 0
    for key, length in parts:
        store.staging.reserve(key, length)
        span = ByteRange(0, length)
        with store.staging.writer(key, span, LIMITS) as writer:
            writer.write(span, body(position, position + length), ignore)
            record(store, writer)
        position += length


def test_the_parts_are_concatenated(place: Place) -> None:
    stage_parts(place)
    place.store.staging.reserve(KEY, 1000)
    place.store.library.concatenate(KEY, PARTS)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)
    assert place.staged() == {key for key, _ in PARTS}, "they stay as they are"


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("counts", [(0.25, 2.5), (2, 2), (0.5, 0, 2.25), (1, 0), (0.1, 0.1)])
@pytest.mark.parametrize("are_published", [False, True], ids=["parts", "files"])
def test_long_parts_are_concatenated(
    in_bucket: InBucket, counts: Sequence[float], *, are_published: bool
) -> None:
    parts = [(f"{number:032x}", int(count * PIECE)) for number, count in enumerate(counts, 1)]
    length, store = sum(length for _, length in parts), in_bucket.store
    stage_in(store, parts)
    if are_published:
        for key, part_length in parts:
            store.library.publish(key, part_length)
    store.staging.reserve(KEY, length)
    store.library.concatenate(KEY, parts)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)


@pytest.mark.usefixtures("short_pieces")
def test_pieces_of_which_others_have_some_bytes_are_not_stored_again(in_bucket: InBucket) -> None:
    store, keys, length = in_bucket.store, [f"{number:032x}" for number in (1, 2)], 2 * PIECE + 10
    for key in keys:
        store.staging.reserve(key, length)
        for start, end in ((PIECE, length), (PIECE - 1000, PIECE + 1000), (0, PIECE), (50, 90)):
            fill(store, key, start, end)
    stored = [each.name for each in in_bucket.bucket.list_objects()]
    store.staging.reserve(KEY, 2 * length)
    store.library.concatenate(KEY, [(key, length) for key in keys])
    assert [each.name for each in in_bucket.bucket.list_objects()] == stored
    assert read_all(store, [KEY]) == [pattern(0, length) * 2]
    store.library.publish(KEY, 2 * length)
    assert content(store, KEY) == pattern(0, length) * 2


def read_all(store: Store, keys: Sequence[str]) -> list[bytes]:
    """The bytes of files, published or not."""
    found = []
    for key in keys:
        if key in store.inspection.published():
            found.append(content(store, key))
        else:
            with store.staging.open(key) as file:
                found.append(file.read())
    return found


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize(
    ("length", "published"),
    [
        *((2 * PIECE + 10, ()), (2 * PIECE + 10, (1, 2)), (2 * PIECE + 10, (0, 1))),
        *((1000, ()), (1000, (1,)), (1000, (0,)), (1000, (2, 1)), (1000, (0, 1, 2))),
    ],
)
def test_objects_that_files_share_go_with_the_last_of_them(
    versitygw: S3Server,
    catalog: BucketCatalog,
    clock: Clock,
    tmp_path: Path,
    length: int,
    published: Sequence[int],
    order: Sequence[int],
) -> None:
    """A part, and two concatenations with it, the first of nothing else; removed in any order."""
    bucket = bucket_at(versitygw.access, new_prefix())
    store = BucketStore(bucket, catalog, tmp_path / "staging")
    keys, rest = [f"{number:032x}" for number in range(1, 4)], OTHER_KEY
    whole = [length, length, length + 20]
    stage_in(store, [(keys[0], length), (rest, 20)])
    for key, sources in ((keys[1], [keys[0]]), (keys[2], [keys[0], rest])):
        parts = [(source, 20 if source == rest else length) for source in sources]
        store.staging.reserve(key, sum(length for _, length in parts))
        store.library.concatenate(key, parts)
    stored = sum(each.length for each in bucket.list_objects())
    assert stored == length + 20, "no byte of the parts is stored twice"
    store.library.delete(rest)
    for number in published:
        store.library.publish(keys[number], whole[number])
    wanted = [pattern(0, each) for each in whole]
    left = dict(zip(keys, wanted, strict=True))
    for number in order:
        assert read_all(store, list(left)) == list(left.values())
        store.library.delete(keys[number])
        del left[keys[number]]
        clock.end_leases()
        store.inspection.collect_garbage()
    assert [*bucket.list_objects(), *bucket.list_multiparts()] == []


def test_concatenating_can_be_repeated(place: Place) -> None:
    stage_parts(place)
    place.store.staging.reserve(KEY, 1000)
    place.store.library.concatenate(KEY, PARTS[:2])
    place.store.library.concatenate(KEY, PARTS)
    place.another().library.concatenate(KEY, PARTS)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)


def test_a_published_concatenation_is_left_alone(place: Place) -> None:
    stage_parts(place)
    staged(place.store, KEY, 1000)
    place.store.library.publish(KEY, 1000)
    place.store.library.concatenate(KEY, PARTS[1:])
    assert content(place.store, KEY) == pattern(0, 1000)


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize(
    ("is_published", "step", "is_finished"),
    [
        *((False, "pieces", True), (False, "share", True), (False, "share", False)),
        *((True, "pieces", True), (True, "announce", True), (True, "add_alone", True)),
    ],
)
def test_a_file_that_another_node_concatenates_meanwhile_is_not_lost(
    in_bucket: InBucket,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    *,
    is_published: bool,
    is_finished: bool,
) -> None:
    """The other one may also publish it, and deletes the part, just before a step of this one."""
    length, store, other = 2 * PIECE + 10, in_bucket.store, in_bucket.another()
    parts = [(OTHER_KEY, length)]
    stage_in(store, parts)
    if is_published:
        store.library.publish(*parts[0])
    store.staging.reserve(KEY, length)
    catalog, done = store.pieces.catalog, list[str]()
    plain = getattr(catalog, step)

    def late(*values: object, **options: object) -> object:
        if not done:
            done.append(step)
            other.library.concatenate(KEY, parts)
            if is_finished:
                other.library.publish(KEY, length)
            other.library.delete(OTHER_KEY)
        return plain(*values, **options)

    monkeypatch.setattr(catalog, step, late)
    store.library.concatenate(KEY, parts)
    store.library.publish(KEY, length)
    assert done == [step]
    assert content(store, KEY) == pattern(0, length)


def test_a_part_longer_than_wanted_contributes_its_start(place: Place) -> None:
    stage_parts(place)
    place.store.staging.reserve(KEY, 60)
    place.store.library.concatenate(KEY, [(PARTS[0][0], 60)])
    place.store.library.publish(KEY, 60)
    assert content(place.store, KEY) == pattern(0, 60)


@pytest.mark.parametrize("problem", ["no room", "no part", "short part"])
def test_a_missing_part_is_lost_bytes(folders: Folders, problem: str) -> None:
    stage_parts(folders)
    if problem != "no room":
        folders.store.staging.reserve(KEY, 1000)
    if problem == "no part":
        folders.store.library.delete(PARTS[1][0])
    if problem == "short part":
        os.truncate(folders.staging / PARTS[1][0], 249)
    with pytest.raises(BytesLost):
        folders.store.library.concatenate(KEY, PARTS)
    assert not (folders.library / KEY).exists()


@pytest.mark.parametrize("is_published", [False, True], ids=["arriving", "published"])
@pytest.mark.parametrize("problem", ["no part", "short part"])
def test_a_missing_part_in_a_bucket_is_lost_bytes(
    in_bucket: InBucket, problem: str, *, is_published: bool
) -> None:
    store, (key, length) = in_bucket.store, PARTS[0]
    stage_in(store, PARTS[:2])
    if is_published:
        store.library.publish(key, length)
    if problem == "no part":
        store.library.delete(key)
    store.staging.reserve(KEY, 1000)
    with pytest.raises(BytesLost):
        store.library.concatenate(KEY, [PARTS[1], (key, length + 1)])


def test_concatenating_waits_for_an_older_writer(folders: Folders) -> None:
    stage_parts(folders)
    folders.store.staging.reserve(KEY, 1000)
    is_done = threading.Event()

    def concatenate() -> None:
        folders.another().library.concatenate(KEY, PARTS)
        is_done.set()

    thread = threading.Thread(target=concatenate)
    with folders.store.staging.writer(KEY, ByteRange(0, 10), LIMITS):
        thread.start()
        assert not is_done.wait(0.1)
    thread.join(30)
    assert is_done.is_set()


def test_a_published_file_is_never_replaced(folders: Folders) -> None:
    """Space reserved too late has the name of the file, and contains zeros."""
    staged(folders.store, KEY, 1000)
    folders.store.library.publish(KEY, 1000)
    (folders.staging / KEY).write_bytes(bytes(1000))
    folders.store.library.publish(KEY, 1000)
    assert content(folders.store, KEY) == pattern(0, 1000)
    assert names(folders.staging) == set()
    assert names(folders.library) == {KEY}


def test_no_space_is_reserved_for_a_published_file(place: Place) -> None:
    staged(place.store, KEY, 1000)
    place.store.library.publish(KEY, 1000)
    place.store.staging.reserve(KEY, 1000)
    assert place.staged() == set()
    assert place.published() == {KEY}
    assert content(place.store, KEY) == pattern(0, 1000)


def test_the_reservation_grows_and_the_bytes_stay(folders: Folders) -> None:
    staged(folders.store, KEY, 300)
    folders.store.staging.enlarge(KEY, 1000)
    assert (folders.staging / KEY).stat().st_size == 1000
    folders.store.staging.enlarge(KEY, 500)
    assert (folders.staging / KEY).stat().st_size == 1000, "it never shrinks"
    fill(folders.store, KEY, 300, 1000)
    folders.store.library.publish(KEY, 1000)
    assert content(folders.store, KEY) == pattern(0, 1000)
    assert names(folders.library) == {KEY}


def test_a_grown_reservation_is_also_held_in_the_library(folders: Folders) -> None:
    staged(folders.store, KEY, 300)
    folders.store.staging.enlarge(KEY, 1 << 20)
    where = (
        folders.staging / KEY
        if folders.is_one_file_system
        else folders.library / f".{KEY}.incoming"
    )
    assert where.stat().st_blocks * 512 >= 1 << 20


def test_only_an_existing_file_can_grow(folders: Folders) -> None:
    with pytest.raises(BytesLost):
        folders.store.staging.enlarge(KEY, 1000)
    assert names(folders.staging) == set()
    staged(folders.store, OTHER_KEY, 10)
    folders.store.library.delete(OTHER_KEY)
    with pytest.raises(BytesLost):
        folders.store.staging.enlarge(OTHER_KEY, 1000)
    assert names(folders.staging) | names(folders.library) == set()


def test_without_space_to_grow_the_bytes_stay(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged(folders.store, KEY, 300)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
        with pytest.raises(NoRoom):
            folders.store.staging.enlarge(KEY, 1000)
        with pytest.raises(NoRoom):
            folders.store.staging.reserve(KEY, 1000)
    folders.store.library.publish(KEY, 300)
    assert content(folders.store, KEY) == pattern(0, 300)


def test_a_disk_that_fills_up_meanwhile_is_reported_as_no_room(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_parts(folders)
    folders.store.staging.reserve(KEY, 1000)

    def fail(*_: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(library, "copy_range", fail)
        with pytest.raises(NoRoom):
            folders.store.library.concatenate(KEY, PARTS)
    folders.store.library.concatenate(KEY, PARTS)
    folders.store.library.publish(KEY, 1000)
    assert content(folders.store, KEY) == pattern(0, 1000)
