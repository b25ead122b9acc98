"""Each kind of records, so that one suite runs over all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.records.base import UploadRecords
from app.records.engine import Database
from app.records.memory import MemoryRecords
from app.records.sql import SqlRecords
from tests.records.making import sqlite


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = sqlite(tmp_path / "folder" / "sluice.db")
    database.migrate()
    yield database
    database.close()


@pytest.fixture(params=["memory", "sqlite"])
def records(request: pytest.FixtureRequest) -> UploadRecords:
    if request.param == "memory":
        return MemoryRecords()
    return SqlRecords(request.getfixturevalue("database"))
