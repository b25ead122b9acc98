"""A store on one file system, on two, and in a bucket."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from app.core import pieces
from app.db.engine import Database
from app.storage.base import Store
from app.storage.local import LocalStore
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from tests.records.making import new_sqlite
from tests.s3_servers import S3Server, new_prefix
from tests.storage.nodes import PIECE, Clock
from tests.storage.stores import (
    MEMORY_FOLDER,
    bucket_at,
    bucket_store,
    local_store,
    names,
)


class Place(Protocol):
    """A store, as the tests of its contract see it."""

    @property
    def store(self) -> Store: ...

    def another(self) -> Store:
        """The same store in another process."""
        ...

    def staged(self) -> set[str]:
        """Keys of unpublished files."""
        ...

    def published(self) -> set[str]:
        """Keys of published files."""
        ...


@dataclass(frozen=True, slots=True)
class Folders:
    """A store on a disk, and its folders."""

    store: LocalStore
    staging: Path
    library: Path

    @property
    def is_one_file_system(self) -> bool:
        return self.staging.parent.stat().st_dev == self.library.parent.stat().st_dev

    def another(self) -> LocalStore:
        return local_store(self.staging, self.library)

    def staged(self) -> set[str]:
        return names(self.staging)

    def published(self) -> set[str]:
        return {name for name in names(self.library) if not name.startswith(".")}


class InBucket:
    """A store in a bucket; all that are made of it share the database and the folder of spools."""

    def __init__(self, bucket: Bucket, folder: Path, stack: ExitStack) -> None:
        self.bucket = bucket
        self._folder = folder
        self._stack = stack
        self.store = self.another()

    def another(self) -> BucketStore:
        return self._stack.enter_context(bucket_store(self.bucket, self._folder))

    def staged(self) -> set[str]:
        return {file.key for file in self.store.inspection.staged()}

    def published(self) -> set[str]:
        return set(self.store.inspection.published())


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY_FOLDER.is_dir() or MEMORY_FOLDER.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"{MEMORY_FOLDER} is not a file system of its own here")
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER, prefix="sluice-test-") as folder:
        yield Path(folder)


@pytest.fixture
def one_file_system(tmp_path: Path) -> Folders:
    staging, library = tmp_path / "staging", tmp_path / "data" / "library"
    return Folders(local_store(staging, library), staging, library)


@pytest.fixture
def two_file_systems(tmp_path: Path, memory_folder: Path) -> Folders:
    staging, library = memory_folder / "staging", tmp_path / "data" / "library"
    return Folders(local_store(staging, library), staging, library)


@pytest.fixture
def bucket(versitygw: S3Server) -> Bucket:
    """A place of its own in a bucket."""
    return bucket_at(versitygw.access, new_prefix())


@pytest.fixture
def in_bucket(bucket: Bucket, tmp_path: Path) -> Iterator[InBucket]:
    with ExitStack() as stack:
        yield InBucket(bucket, tmp_path, stack)


@pytest.fixture(params=["one_file_system", "two_file_systems"])
def folders(request: pytest.FixtureRequest) -> Folders:
    """For what only folders promise."""
    found: Folders = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["one_file_system", "two_file_systems", "in_bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    """For what every store promises."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 6 MiB, so that a file of several parts is soon sent."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", PIECE)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(new_sqlite(tmp_path / "sluice.db")) as found:
        yield found


@pytest.fixture
def catalog(database: Database, clock: Clock) -> BucketCatalog:
    return BucketCatalog(database, clock)
