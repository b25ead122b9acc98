"""A disk that fills up in the middle of a transaction which several writers share."""

from __future__ import annotations

from threading import Event, Thread

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.domain.errors import StorageFailed
from app.records.engine import Database
from app.records.group_commit import GroupCommit

FILL_UP = text("INSERT INTO blobs VALUES (zeroblob(1000000))")


@pytest.fixture
def group(database: Database) -> GroupCommit:
    """Writers of a database that has hardly any room left."""
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE blobs (blob BLOB)")
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER)")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 10}")
    return GroupCommit(database._transaction)


def test_nobody_is_told_of_a_commit_that_the_full_disk_has_undone(
    database: Database, group: GroupCommit
) -> None:
    errors: list[type[Exception]] = []
    is_working, may_go_on = Event(), Event()

    def write_number() -> None:
        try:
            with group.join() as connection:
                connection.exec_driver_sql("INSERT INTO numbers VALUES (1)")
                is_working.set()
                may_go_on.wait()
        except StorageFailed as error:
            errors.append(type(error))

    def fill_up() -> None:
        try:
            with group.join() as connection:
                connection.execute(FILL_UP)
        except (OperationalError, StorageFailed) as error:
            errors.append(type(error))

    threads = [Thread(target=write_number), Thread(target=fill_up)]
    threads[0].start()
    is_working.wait()
    threads[1].start()
    while not group._waiting:
        pass
    may_go_on.set()
    for thread in threads:
        thread.join()
    assert len(errors) == 2
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT * FROM numbers").all() == []


def test_after_a_full_disk_others_write_as_before(database: Database, group: GroupCommit) -> None:
    with pytest.raises((OperationalError, StorageFailed)), group.join() as connection:
        connection.execute(FILL_UP)
    with group.join() as connection:
        connection.exec_driver_sql("INSERT INTO numbers VALUES (2)")
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT * FROM numbers").all() == [(2,)]
