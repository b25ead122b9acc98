"""Other programs of the group may read a published file once allowed, and nothing else."""

from pathlib import Path

import pytest

from app.storage.local import LocalStore
from tests.storage.stores import KEY, OTHER_KEY, local_store, staged


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Two published files."""
    store = local_store(tmp_path / "staging", tmp_path / "library")
    for key in (KEY, OTHER_KEY):
        staged(store, key, 100)
        store.library.publish(key, 100)
    return store


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_files_are_private_until_shared_with_the_group(store: LocalStore, tmp_path: Path) -> None:
    library = tmp_path / "library"
    assert (mode(library), mode(library / KEY)) == (0o700, 0o600)
    store.library.let_group_read(KEY)
    assert (mode(library), mode(library / KEY)) == (0o750, 0o640)
    assert mode(library / OTHER_KEY) == 0o600


def test_the_group_may_traverse_the_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store = local_store(tmp_path / "staging", data / "library")
    staged(store, KEY, 100)
    store.library.publish(KEY, 100)
    assert mode(data) == 0o700, "made with the library, and no more open than that"
    store.library.let_group_read(KEY)
    assert mode(data) == 0o710


def test_permissions_set_by_an_operator_stay(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "library").chmod(0o2755)
    (tmp_path / "library" / KEY).chmod(0o604)
    store.library.let_group_read(KEY)
    assert mode(tmp_path / "library") == 0o2755
    assert mode(tmp_path / "library" / KEY) == 0o644


def test_unpublished_files_are_not_shared(store: LocalStore, tmp_path: Path) -> None:
    store.library.delete(KEY)
    with pytest.raises(FileNotFoundError):
        store.library.let_group_read(KEY)
    staged(store, KEY, 100)
    with pytest.raises(FileNotFoundError):
        store.library.let_group_read(KEY)
    assert mode(tmp_path / "staging" / KEY) == 0o600


def test_a_link_is_not_followed(store: LocalStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    secret.chmod(0o600)
    (tmp_path / "library" / KEY).unlink()
    (tmp_path / "library" / KEY).symlink_to(secret)
    with pytest.raises(FileNotFoundError, match="a link"):
        store.library.let_group_read(KEY)
    assert mode(secret) == 0o600
