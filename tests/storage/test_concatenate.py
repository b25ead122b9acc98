"""Growing reservations, and files made of others: on one file system and on two."""

import errno
import os
import threading

import pytest

from app.domain.errors import NoRoom
from app.domain.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.local import folder, library
from tests.storage.conftest import Place
from tests.storage.sources import body, pattern
from tests.storage.stores import KEY, LIMITS, OTHER_KEY, content, fill, names, staged

PARTS = [(f"{1:032x}", 100), (f"{2:032x}", 250), (f"{3:032x}", 650)]


def stage_parts(place: Place) -> None:
    """Stage parts with the bytes of the test's file, from its start."""
    position = 0
    for key, length in PARTS:
        place.store.staging.reserve(key, length)
        span = ByteRange(0, length)
        with place.store.staging.writer(key, span, LIMITS) as writer:
            writer.write(span, body(position, position + length), lambda _: None)
        position += length


def test_the_parts_are_concatenated(place: Place) -> None:
    stage_parts(place)
    place.store.staging.reserve(KEY, 1000)
    place.store.library.concatenate(KEY, PARTS)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)
    assert names(place.staging) == {key for key, _ in PARTS}, "they stay as they are"


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
def test_a_missing_part_is_lost_bytes(place: Place, problem: str) -> None:
    stage_parts(place)
    if problem != "no room":
        place.store.staging.reserve(KEY, 1000)
    if problem == "no part":
        place.store.library.delete(PARTS[1][0])
    if problem == "short part":
        os.truncate(place.staging / PARTS[1][0], 249)
    with pytest.raises(BytesLost):
        place.store.library.concatenate(KEY, PARTS)
    assert not (place.library / KEY).exists()


def test_concatenating_waits_for_an_older_writer(place: Place) -> None:
    stage_parts(place)
    place.store.staging.reserve(KEY, 1000)
    is_done = threading.Event()

    def concatenate() -> None:
        place.another().library.concatenate(KEY, PARTS)
        is_done.set()

    thread = threading.Thread(target=concatenate)
    with place.store.staging.writer(KEY, ByteRange(0, 10), LIMITS):
        thread.start()
        assert not is_done.wait(0.1)
    thread.join(30)
    assert is_done.is_set()


def test_a_published_file_is_never_replaced(place: Place) -> None:
    """Space reserved too late has the name of the file, and contains zeros."""
    staged(place.store, KEY, 1000)
    place.store.library.publish(KEY, 1000)
    (place.staging / KEY).write_bytes(bytes(1000))
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)
    assert names(place.staging) == set()
    assert names(place.library) == {KEY}


def test_no_space_is_reserved_for_a_published_file(place: Place) -> None:
    staged(place.store, KEY, 1000)
    place.store.library.publish(KEY, 1000)
    place.store.staging.reserve(KEY, 1000)
    assert names(place.staging) == set()
    assert names(place.library) == {KEY}
    assert content(place.store, KEY) == pattern(0, 1000)


def test_the_reservation_grows_and_the_bytes_stay(place: Place) -> None:
    staged(place.store, KEY, 300)
    place.store.staging.enlarge(KEY, 1000)
    assert (place.staging / KEY).stat().st_size == 1000
    place.store.staging.enlarge(KEY, 500)
    assert (place.staging / KEY).stat().st_size == 1000, "it never shrinks"
    fill(place.store, KEY, 300, 1000)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)
    assert names(place.library) == {KEY}


def test_a_grown_reservation_is_also_held_in_the_library(place: Place) -> None:
    staged(place.store, KEY, 300)
    place.store.staging.enlarge(KEY, 1 << 20)
    where = place.staging / KEY if place.is_one_file_system else place.library / f".{KEY}.incoming"
    assert where.stat().st_blocks * 512 >= 1 << 20


def test_only_an_existing_file_can_grow(place: Place) -> None:
    with pytest.raises(BytesLost):
        place.store.staging.enlarge(KEY, 1000)
    assert names(place.staging) == set()
    staged(place.store, OTHER_KEY, 10)
    place.store.library.delete(OTHER_KEY)
    with pytest.raises(BytesLost):
        place.store.staging.enlarge(OTHER_KEY, 1000)
    assert names(place.staging) | names(place.library) == set()


def test_without_space_to_grow_the_bytes_stay(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged(place.store, KEY, 300)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "KEPT_FREE_BYTES", 1 << 62)
        with pytest.raises(NoRoom):
            place.store.staging.enlarge(KEY, 1000)
        with pytest.raises(NoRoom):
            place.store.staging.reserve(KEY, 1000)
    place.store.library.publish(KEY, 300)
    assert content(place.store, KEY) == pattern(0, 300)


def test_a_disk_that_fills_up_meanwhile_is_reported_as_no_room(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_parts(place)
    place.store.staging.reserve(KEY, 1000)

    def fail(*_: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(library, "copy_range", fail)
        with pytest.raises(NoRoom):
            place.store.library.concatenate(KEY, PARTS)
    place.store.library.concatenate(KEY, PARTS)
    place.store.library.publish(KEY, 1000)
    assert content(place.store, KEY) == pattern(0, 1000)
