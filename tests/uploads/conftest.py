"""A new world for each test."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.base import Durability
from app.storage.local import LocalStore
from tests.s3_servers import new_prefix
from tests.storage.stores import MEMORY_FOLDER, bucket_at
from tests.uploads.world import World, buckets, opened


@pytest.fixture(autouse=True)
def close_databases() -> Iterator[None]:
    """A connection left open would be a warning, and so an error, of some later test."""
    yield
    while opened:
        opened.pop().close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the mark `every_store` on a disk and in a bucket."""
    if metafunc.definition.get_closest_marker("every_store"):
        metafunc.parametrize("place_of_files", ["disk", "s3"], indirect=True)


@pytest.fixture(autouse=True)
def place_of_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--storage=s3`, worlds have their files in a bucket; tests of folders are left out.

    A test with the mark `every_store` has them in both, whatever the option says.
    """
    if getattr(request, "param", request.config.getoption("--storage")) == "s3":
        if request.node.get_closest_marker("folders"):
            pytest.skip("about files in folders")
        access = request.getfixturevalue("versitygw").access
        buckets.append(bucket_at(access, new_prefix()))
    yield
    buckets.clear()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def world_on_two_disks(tmp_path: Path) -> Iterator[World]:
    """Staging is another file system than the library."""
    if not MEMORY_FOLDER.is_dir() or MEMORY_FOLDER.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"{MEMORY_FOLDER} is not a file system of its own here")
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER, prefix="sluice-test-") as folder:
        staging = Path(folder) / "staging"
        store = LocalStore(staging, tmp_path / "library", Durability.CHUNK)
        yield World(tmp_path, store=store, staging=staging)
