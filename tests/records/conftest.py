"""Records in an empty database for each test."""

from __future__ import annotations

import pytest

from app.db.engine import Database
from app.records.uploads import UploadRecords


@pytest.fixture(params=["in_file", "on_server"])
def database(request: pytest.FixtureRequest) -> Database:
    """Each of them in turn: these are the contract suites of the records."""
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def records(database: Database) -> UploadRecords:
    return UploadRecords(database)
