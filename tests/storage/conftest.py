"""A store on one file system, and on two."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.storage.local import LocalStore
from tests.storage.stores import MEMORY_FOLDER, local_store


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and its folders."""

    store: LocalStore
    staging: Path
    library: Path

    @property
    def is_one_file_system(self) -> bool:
        return self.staging.parent.stat().st_dev == self.library.parent.stat().st_dev

    def another(self) -> LocalStore:
        """The same store in another process."""
        return local_store(self.staging, self.library)


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY_FOLDER.is_dir() or MEMORY_FOLDER.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip(f"{MEMORY_FOLDER} is not a file system of its own here")
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER, prefix="sluice-test-") as folder:
        yield Path(folder)


@pytest.fixture(params=["one file system", "two file systems"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    library = tmp_path / "data" / "library"
    if request.param == "one file system":
        staging = tmp_path / "staging"
    else:
        staging = request.getfixturevalue("memory_folder") / "staging"
    return Place(local_store(staging, library), staging, library)
