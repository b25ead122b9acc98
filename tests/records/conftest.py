"""Records in a new database for each test."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.records.engine import Database
from app.records.uploads import UploadRecords
from tests.records.making import new_sqlite


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(new_sqlite(tmp_path / "folder" / "sluice.db")) as database:
        yield database


@pytest.fixture
def records(database: Database) -> UploadRecords:
    return UploadRecords(database)
