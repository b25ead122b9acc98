"""Growing reservations, and files made of others: on one file system and on two."""

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.errors import NoRoom
from app.core.ranges import ByteRange
from app.storage.base import BytesLost, Store
from app.storage.local import folder, library
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from tests.s3_servers import S3Server, new_prefix
from tests.storage.conftest import Folders, Place
from tests.storage.sources import body, pattern
from tests.storage.stores import (
    KEY,
    LIMITS,
    OTHER_KEY,
    SPOOL_BYTES,
    bucket_at,
    content,
    fill,
    ignore,
    names,
    staged,
)

PARTS = [(f"{1:032x}", 100), (f"{2:032x}", 250), (f"{3:032x}", 650)]

CELL = 6 * 1024 * 1024
"""S3 copies ranges of more than 5 MiB."""


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
        position += length


def test_the_parts_are_concatenated(place: Place) -> None:
    stage_parts(place)
    place.store.staging.reserve(KEY, 1000)
    place.store.library.concatenate(KEY, PARTS)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)
    assert place.staged() == {key for key, _ in PARTS}, "they stay as they are"


@pytest.mark.parametrize("cells", [(0.25, 2.5), (2, 2), (0.5, 0, 2.25)])
def test_parts_longer_than_a_cell_are_concatenated(
    versitygw: S3Server, catalog: BucketCatalog, tmp_path: Path, cells: Sequence[float]
) -> None:
    """The parts are themselves multipart objects; versitygw copies them with their checksum."""
    bucket = bucket_at(versitygw.access, new_prefix())
    store = BucketStore(
        *(bucket, catalog, tmp_path / "staging"),
        spool_bytes=SPOOL_BYTES,
        smallest_cell_bytes=CELL,
    )
    parts = [(f"{number:032x}", int(count * CELL)) for number, count in enumerate(cells, 1)]
    length = sum(length for _, length in parts)
    stage_in(store, parts)
    store.staging.reserve(KEY, length)
    store.library.concatenate(KEY, parts)
    store.library.publish(KEY, length)
    assert content(store, KEY) == pattern(0, length)


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
