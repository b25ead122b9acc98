"""What a store promises about space, publishing and deleting, on one file system and two."""

import os
from pathlib import Path

import pytest

from app.core.errors import StorageFailed
from app.core.ranges import ByteRange
from app.storage.base import BytesLost, Durability
from app.storage.local import LocalStore
from tests.storage.conftest import Folders, Place
from tests.storage.sources import body, pattern
from tests.storage.stores import KEY, LIMITS, OTHER_KEY, content, fill, ignore, names, staged

MIB = 1024 * 1024
BLOCK = 512
"""Bytes in one of the blocks that `st_blocks` counts."""


def test_reserved_space_is_really_allocated(folders: Folders) -> None:
    folders.store.staging.reserve(KEY, 3 * MIB)
    found = (folders.staging / KEY).stat()
    assert found.st_size == 3 * MIB
    assert found.st_blocks * BLOCK >= 3 * MIB


def test_space_is_reserved_in_the_library_too(folders: Folders) -> None:
    folders.store.staging.reserve(KEY, 3 * MIB)
    incoming = folders.library / f".{KEY}.incoming"
    if folders.is_one_file_system:
        assert not incoming.exists()
    else:
        assert incoming.stat().st_blocks * BLOCK >= 3 * MIB


def test_reserving_again_keeps_the_bytes(place: Place) -> None:
    staged(place.store, KEY, 1000)
    place.store.staging.reserve(KEY, 1000)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)


def test_reserving_again_may_ask_for_more(place: Place) -> None:
    staged(place.store, KEY, 1000)
    place.store.staging.reserve(KEY, 2000)
    fill(place.store, KEY, 1000, 2000)
    place.store.library.publish(KEY, 2000)
    assert content(place.store, KEY) == pattern(0, 2000)


def test_only_the_owner_can_read_files_and_folders(folders: Folders) -> None:
    folders.store.staging.reserve(KEY, 10)
    assert folders.staging.stat().st_mode & 0o077 == 0
    assert (folders.staging / KEY).stat().st_mode & 0o077 == 0


def test_ranges_may_arrive_in_any_order(place: Place) -> None:
    place.store.staging.reserve(KEY, 1000)
    for start in (600, 0, 800, 200, 400):
        assert fill(place.store, KEY, start, start + 200) == start + 200
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)


def test_publishing_moves_the_file_out_of_staging(place: Place) -> None:
    staged(place.store, KEY, 5000)
    place.store.library.publish(KEY, 5000)
    assert place.staged() == set()
    assert place.published() == {KEY}
    assert content(place.store, KEY) == pattern(0, 5000)


@pytest.mark.parametrize("length", [0, 1, 2 * MIB + 3])
def test_files_of_any_length_are_published_whole(place: Place, length: int) -> None:
    staged(place.store, KEY, length)
    place.store.library.publish(KEY, length)
    assert content(place.store, KEY) == pattern(0, length)


def test_publishing_twice_is_harmless(place: Place) -> None:
    staged(place.store, KEY, 1000)
    place.store.library.publish(KEY, 1000)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)


def test_publishing_frees_space_beyond_the_length(folders: Folders) -> None:
    staged(folders.store, KEY, 1000, room=4 * MIB)
    folders.store.library.publish(KEY, 1000)
    found = (folders.library / KEY).stat()
    assert found.st_size == 1000
    assert found.st_blocks * BLOCK < MIB


def test_publishing_a_missing_file_is_a_loss(place: Place) -> None:
    with pytest.raises(BytesLost):
        place.store.library.publish(KEY, 0)


def test_publishing_a_file_that_is_too_short_is_a_loss(place: Place) -> None:
    staged(place.store, KEY, 1000)
    with pytest.raises(BytesLost):
        place.store.library.publish(KEY, 1001)
    assert place.published() == set()
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)


def test_a_published_file_is_opened_at_the_requested_position(place: Place) -> None:
    staged(place.store, KEY, 1000)
    place.store.library.publish(KEY, 1000)
    with place.store.library.open(KEY, ByteRange(990, 995)) as file:
        assert file.tell() == 990
        assert file.read(5) == pattern(990, 995)


def test_an_unpublished_file_cannot_be_opened_as_a_published_one(place: Place) -> None:
    staged(place.store, KEY, 1000)
    with pytest.raises(FileNotFoundError):
        place.store.library.open(KEY, ByteRange(0, 1))


def test_a_staged_file_is_opened_from_its_start(place: Place) -> None:
    staged(place.store, KEY, 1000)
    with place.store.staging.open(KEY) as file:
        assert file.read(7) == pattern(0, 7)


def test_lost_files_are_distinguished_from_other_errors(place: Place) -> None:
    with pytest.raises(BytesLost):
        place.store.staging.open(KEY)
    with pytest.raises(BytesLost), place.store.staging.writer(KEY, ByteRange(0, 1), LIMITS):
        pytest.fail("there is no room reserved")


@pytest.mark.parametrize("is_published", [False, True])
def test_deleting_leaves_nothing_and_can_be_repeated(place: Place, is_published: bool) -> None:
    staged(place.store, KEY, 1000)
    staged(place.store, OTHER_KEY, 1000)
    if is_published:
        place.store.library.publish(KEY, 1000)
    place.store.library.delete(KEY)
    place.store.library.delete(KEY)
    assert place.staged() | place.published() == {OTHER_KEY}


def test_removing_a_staged_file_keeps_the_published_one(place: Place) -> None:
    staged(place.store, KEY, 1000)
    place.store.library.publish(KEY, 1000)
    place.store.staging.remove(KEY)
    assert content(place.store, KEY) == pattern(0, 1000)


def test_staged_and_published_files_are_listed_separately(folders: Folders) -> None:
    staged(folders.store, KEY, 10)
    staged(folders.store, OTHER_KEY, 10)
    folders.store.library.publish(OTHER_KEY, 10)
    os.utime(folders.staging / KEY, (0, 0))
    [file] = folders.store.inspection.staged()
    assert file.key == KEY
    assert file.idle_seconds > 1_000_000
    assert list(folders.store.inspection.published()) == [OTHER_KEY]


def test_two_callers_may_list_at_once(place: Place) -> None:
    keys = {f"{number:032x}" for number in range(20)}
    for key in keys:
        place.store.staging.reserve(key, 1)
    first = place.store.inspection.staged()
    begun = next(first)
    assert {file.key for file in place.store.inspection.staged()} == keys
    assert {begun.key, *(file.key for file in first)} == keys


def test_folders_and_links_are_not_listed(folders: Folders) -> None:
    folders.store.staging.reserve(KEY, 1)
    (folders.staging / "folder").mkdir()
    (folders.staging / "link").symlink_to(folders.staging / KEY)
    assert [file.key for file in folders.store.inspection.staged()] == [KEY]


def test_a_link_in_place_of_a_staged_file_is_refused(folders: Folders, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folders.store.staging.reserve(OTHER_KEY, 1)
    (folders.staging / KEY).symlink_to(victim)
    with pytest.raises(StorageFailed):
        folders.store.staging.reserve(KEY, 1000)
    (folders.staging / KEY).unlink(missing_ok=True)
    (folders.staging / KEY).symlink_to(victim)
    with pytest.raises(StorageFailed), folders.store.staging.writer(KEY, ByteRange(0, 1), LIMITS):
        pytest.fail("a link was followed")
    with pytest.raises(StorageFailed):
        folders.store.library.publish(KEY, 4)
    with pytest.raises(StorageFailed):
        folders.store.staging.open(KEY)
    assert victim.read_bytes() == b"precious"


def test_a_link_in_place_of_a_published_file_is_not_followed(
    folders: Folders, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    staged(folders.store, OTHER_KEY, 1)
    folders.store.library.publish(OTHER_KEY, 1)
    (folders.library / KEY).symlink_to(secret)
    with pytest.raises(OSError, match="a link stands in its place"):
        folders.store.library.open(KEY, ByteRange(0, 1))
    assert set(folders.store.inspection.published()) == {OTHER_KEY}


def test_a_deleted_staging_folder_is_created_again(folders: Folders) -> None:
    folders.store.staging.reserve(KEY, 10)
    (folders.staging / KEY).unlink()
    folders.staging.rmdir()
    with pytest.raises(BytesLost):
        folders.store.staging.open(KEY)
    folders.store.staging.reserve(KEY, 10)
    fill(folders.store, KEY, 0, 10)
    folders.store.library.publish(KEY, 10)
    assert content(folders.store, KEY) == pattern(0, 10)


def test_nothing_is_opened_or_created_before_it_is_needed(tmp_path: Path) -> None:
    LocalStore(tmp_path / "staging", tmp_path / "library", Durability.CHUNK)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("durability", Durability)
def test_every_durability_stores_the_same_bytes(tmp_path: Path, durability: Durability) -> None:
    store = LocalStore(tmp_path / "staging", tmp_path / "library", durability)
    store.staging.reserve(KEY, 1000)
    with store.staging.writer(KEY, ByteRange(0, 1000), LIMITS) as writer:
        assert writer.write(ByteRange(0, 1000), body(0, 1000, 7, None), ignore) == 1000
    store.library.publish(KEY, 1000)
    assert content(store, KEY) == pattern(0, 1000)
