"""One SQLite file under many processes and threads."""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from app.core.ranges import ByteRange, RangeSet
from app.db.engine import Database
from app.db.tables import uploads
from app.records.uploads import UploadRecords
from tests.records.making import at, new_upload, sqlite
from tests.records.processes import migrate, run_processes


@pytest.fixture
def database(in_file: Database) -> Database:
    return in_file


def test_concurrent_migrations_take_turns(tmp_path: Path) -> None:
    assert run_processes(migrate, [(tmp_path, 5)] * 6) == [0] * 6


def test_a_new_database_that_another_process_writes_to_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait when it switches to the write-ahead log."""
    path, errors = tmp_path / "sluice.db", list[Exception]()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        database = sqlite(path)

        def run() -> None:
            try:
                database.migrate()
            except SQLAlchemyError as error:
                errors.append(error)

        migration = Thread(target=run)
        migration.start()
        migration.join(0.1)
        other.execute("COMMIT")
        migration.join(30)
    database.close()
    assert errors == []


def test_a_connection_in_use_is_closed_when_returned(
    database: Database,
) -> None:
    with database.read() as connection:
        driver: Any = connection.connection.dbapi_connection
        database.close()
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        driver.execute("SELECT 1")


def test_a_connection_opened_after_closing_is_closed_when_returned(database: Database) -> None:
    """By a thread that publishes a file while its process ends."""
    database.close()
    with database.read() as connection:
        driver: Any = connection.connection.dbapi_connection
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        driver.execute("SELECT 1")


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    records = UploadRecords(database)
    upload, _ = records.add(new_upload())
    query = update(uploads).values(received=RangeSet.of([ByteRange(0, 5)]))

    def write_and_fail() -> None:
        with database.write() as connection:
            connection.execute(query)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_and_fail()
    assert list(records.get(upload.id).received) == []
    records.add_received(upload, ByteRange(0, 5), at(1))


def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    records = UploadRecords(database)
    upload, _ = records.add(new_upload())
    with database.write() as connection:
        connection.execute(update(uploads).values(received=RangeSet.of([ByteRange(0, 5)])))
        assert list(records.get(upload.id).received) == []
    assert list(records.get(upload.id).received) == [ByteRange(0, 5)]
