"""Records in an empty database for each test: in a file, and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.records.engine import Database
from app.records.identity.tables import projects
from app.records.uploads import UploadRecords
from tests.postgresql import MISSING, folder_of_programs, postgresql
from tests.records.making import new_sqlite


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """An empty, migrated database on a server, for one process of the tests."""
    if folder_of_programs() is None:
        pytest.skip(MISSING)
    with postgresql() as server:
        url = server.create("sluice")
        with closing(on_server(url)) as database:
            database.migrate()
        yield url


def on_server(url: str) -> Database:
    return Database(url, synced=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with closing(new_sqlite(tmp_path / "folder" / "sluice.db")) as database:
            yield database
    else:
        with closing(on_server(request.getfixturevalue("server_url"))) as database:
            _empty(database)
            yield database


def _empty(database: Database) -> None:
    tables = ", ".join(name for name in projects.metadata.tables)
    with database.write() as connection:
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))


@pytest.fixture
def records(database: Database) -> UploadRecords:
    return UploadRecords(database)
