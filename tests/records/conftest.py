"""Records in an empty database for each test."""

from __future__ import annotations

import pytest

from app.records.engine import Database
from app.records.uploads import UploadRecords


@pytest.fixture
def records(database: Database) -> UploadRecords:
    return UploadRecords(database)
