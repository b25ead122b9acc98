"""What a store promises about several files at once, on one file system and two."""

import os

import pytest

from app.core.ranges import ByteRange
from app.storage.base import BytesLost, Durability, Store
from app.storage.local import LocalStore
from tests.storage.conftest import Folders, Place
from tests.storage.sources import PiecesSource, pattern
from tests.storage.stores import LIMITS, content

KEYS = [f"{number:032x}" for number in range(10)]
LENGTHS = [0, 1, *(1000 * number for number in range(8))]
FILES = list(zip(KEYS, LENGTHS, strict=True))


def receive(store: Store, key: str, length: int) -> None:
    source = PiecesSource(pattern(0, length), (1000,), is_told=False)
    store.staging.receive(key, source, 1 << 20, LIMITS)


def received(store: Store) -> None:
    for key, length in FILES:
        receive(store, key, length)


def test_a_group_is_published_whole(place: Place) -> None:
    received(place.store)
    place.store.staging.sync(KEYS)
    place.store.library.publish_all(FILES)
    assert place.staged() == set()
    assert place.published() == set(KEYS)
    assert [content(place.store, key) for key in KEYS] == [pattern(0, n) for n in LENGTHS]


def test_publishing_a_group_again_is_harmless(place: Place) -> None:
    received(place.store)
    place.store.staging.sync(KEYS)
    place.store.library.publish(*FILES[3])
    place.store.library.publish_all(FILES)
    place.another().library.publish_all(FILES)
    assert place.published() == set(KEYS)


def test_a_lost_file_of_a_group_is_reported(place: Place) -> None:
    received(place.store)
    place.store.library.delete(KEYS[5])
    with pytest.raises(BytesLost):
        place.store.staging.sync(KEYS)
    with pytest.raises(BytesLost):
        place.store.library.publish_all(FILES)
    for key, length in FILES[:5] + FILES[6:]:
        place.store.library.publish(key, length)
    assert place.published() == set(KEYS) - {KEYS[5]}


def test_an_empty_group_is_published(place: Place) -> None:
    place.store.staging.sync([])
    place.store.library.publish_all([])
    assert place.published() == set()


@pytest.mark.parametrize("durability", list(Durability))
def test_files_are_synced_before_their_names_and_the_folder_once(
    folders: Folders, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(folders.staging, folders.library, durability)
    synced: list[str] = []

    def note(call: str) -> None:
        real = getattr(os, call)

        def noting(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            synced.append(path)
            real(descriptor)

        monkeypatch.setattr(os, call, noting)

    received(store)
    note("fdatasync")
    note("fsync")
    store.staging.sync(KEYS)
    expected = {str(folders.staging / key) for key in KEYS}
    assert set(synced) == (set() if durability is Durability.NONE else expected)
    store.library.publish_all(FILES)
    assert synced.count(str(folders.library)) == (0 if durability is Durability.NONE else 1)
    with store.library.open(KEYS[4], ByteRange(0, 0)) as file:
        assert file.read() == pattern(0, LENGTHS[4])
