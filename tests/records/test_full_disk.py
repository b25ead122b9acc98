"""A disk that fills up during a transaction that several writers share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text

from app.core.errors import NoRoom, StorageFailed
from app.db.engine import Database, GroupCommit
from app.db.errors import DATABASE_ERRORS, as_upload_error
from app.db.sql import run


@pytest.fixture
def database(in_file: Database) -> Database:
    return in_file


FILL_UP = text("INSERT INTO blobs VALUES (zeroblob(1000000))")

Work = Callable[[Connection], None]


def fill_up_by_sqlalchemy(connection: Connection) -> None:
    connection.execute(FILL_UP)


def fill_up_by_the_driver(connection: Connection) -> None:
    run(connection, FILL_UP, {})


fill_ups = pytest.mark.parametrize("fill_up", [fill_up_by_sqlalchemy, fill_up_by_the_driver])


def write_number(connection: Connection) -> None:
    connection.exec_driver_sql("INSERT INTO numbers VALUES (1)")


def write_and_refuse_to_go_back(connection: Connection) -> None:
    """Fails without rolling back the savepoint; the transaction stays open."""

    def refuse(action: int, operation: str | None, *_: str | None) -> int:
        is_refused = (action, operation) == (sqlite3.SQLITE_SAVEPOINT, "ROLLBACK")
        return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK

    write_number(connection)
    connection.connection.set_authorizer(refuse)
    raise ValueError


@pytest.fixture
def group(database: Database) -> GroupCommit:
    """Writers of a database with hardly any space left."""
    with database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE blobs (blob BLOB)")
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER)")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 10}")
    return GroupCommit(database._transaction)


def errors_of(group: GroupCommit, work: Work, *others: Work) -> list[type[Exception] | None]:
    """The errors of the writers that share a transaction; they work in this order."""
    error: type[Exception] | None = None
    with ThreadPoolExecutor(1) as thread:
        try:
            with group.join() as connection:
                if others:
                    behind = thread.submit(errors_of, group, *others)
                    while not group._waiting:
                        pass
                work(connection)
        except DATABASE_ERRORS as caught:
            error = type(as_upload_error(caught) or caught)
        except (StorageFailed, ValueError) as caught:
            error = type(caught)
        return [error, *(behind.result() if others else [])]


def numbers(database: Database) -> list[int]:
    with database.read() as connection:
        return list(connection.exec_driver_sql("SELECT number FROM numbers").scalars())


def test_writers_share_a_transaction(database: Database, group: GroupCommit) -> None:
    assert errors_of(group, write_number, write_number) == [None, None]
    assert numbers(database) == [1, 1]


@fill_ups
def test_no_writer_is_acknowledged_when_a_full_disk_rolls_back(
    database: Database, group: GroupCommit, fill_up: Work
) -> None:
    assert errors_of(group, write_number, fill_up) == [NoRoom] * 2
    assert numbers(database) == []


@fill_ups
def test_a_writer_after_the_one_that_filled_the_disk_writes_nothing(
    database: Database, group: GroupCommit, fill_up: Work
) -> None:
    errors = errors_of(group, write_number, fill_up, write_number)
    assert errors == [NoRoom] * 3
    assert numbers(database) == []


def test_a_write_that_cannot_be_rolled_back_alone_is_not_committed(
    database: Database, group: GroupCommit
) -> None:
    errors = errors_of(group, write_number, write_and_refuse_to_go_back, write_number)
    assert errors == [StorageFailed] * 3
    assert numbers(database) == []


@fill_ups
def test_after_a_full_disk_others_can_write(
    database: Database, group: GroupCommit, fill_up: Work
) -> None:
    assert errors_of(group, fill_up) == [NoRoom]
    assert errors_of(group, write_number) == [None]
    assert numbers(database) == [1]
