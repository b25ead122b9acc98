"""Records in an empty database for each test: in a file, and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert, text

from app.domain.access import FIRST_PROJECT
from app.records.engine import Database
from app.records.identity.tables import projects
from app.records.transfer import UNFINISHED
from app.records.uploads import UploadRecords
from tests.postgresql import postgresql
from tests.records.making import NOW, new_sqlite


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """An empty, migrated database on a server, for one process of the tests."""
    with postgresql() as server:
        url = server.create("sluice")
        with closing(Database(url, synced=True)) as database:
            database.migrate()
        yield url


@pytest.fixture
def in_file(tmp_path: Path) -> Iterator[Database]:
    with closing(new_sqlite(tmp_path / "folder" / "sluice.db")) as database:
        yield database


@pytest.fixture
def on_server(server_url: str) -> Iterator[Database]:
    with closing(Database(server_url, synced=True)) as database:
        _empty(database)
        yield database


@pytest.fixture(params=["in_file", "on_server"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def _empty(database: Database) -> None:
    """As migrations leave it: the first project alone."""
    tables = ", ".join(projects.metadata.tables)
    first = {"id": FIRST_PROJECT, "name": "Videos", "created_at": NOW, "used_bytes": 0}
    with database.write() as connection:
        UNFINISHED.drop(connection, checkfirst=True)
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
        connection.execute(insert(projects).values(first))


@pytest.fixture
def records(database: Database) -> UploadRecords:
    return UploadRecords(database)
