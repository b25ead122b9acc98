"""One SQLite file under many processes and threads."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from app.domain.lifecycle import UploadState
from app.domain.ranges import ByteRange, RangeSet
from app.records.engine import Database
from app.records.tables import uploads
from app.records.uploads import UploadRecords
from tests.records.making import at, new_upload, sqlite
from tests.records.processes import JOB_ARGUMENTS, JOB_FILMS, SPAN, add_ranges, claim_jobs, migrate


@pytest.fixture
def database(in_file: Database) -> Database:
    return in_file


PROCESSES = 4
THREADS = 16

spawning = get_context("spawn")


def run_processes(target: Callable[..., None], arguments: list[tuple[object, ...]]) -> list[int]:
    """Exit codes of one process per tuple of arguments; they start together."""
    barrier = spawning.Barrier(len(arguments))
    processes = []
    for path, *others in arguments:
        process = spawning.Process(target=target, args=(path, barrier, *others))
        process.start()
        processes.append(process)
    for process in processes:
        process.join(timeout=90)
    return [process.exitcode if process.exitcode is not None else -1 for process in processes]


def test_64_writers_in_4_processes_never_find_the_database_locked(
    database: Database, tmp_path: Path
) -> None:
    """Each thread adds every 64th range of a shared upload, and ranges of its own upload."""
    records = UploadRecords(database)
    per_writer, writers = 6, PROCESSES * THREADS
    shared, _ = records.add(new_upload(length=per_writer * writers * SPAN))
    own = [records.add(new_upload(length=10_000))[0] for _ in range(writers)]
    plans: list[list[list[tuple[str, int]]]] = [[] for _ in range(PROCESSES)]
    for writer in range(writers):
        items: list[tuple[str, int]] = []
        items += [(shared.id, turn * writers + writer) for turn in range(per_writer)]
        items += [(own[writer].id, turn * 2) for turn in range(per_writer)]
        plans[writer % PROCESSES].append(items)
    path = tmp_path / "folder" / "sluice.db"

    codes = run_processes(add_ranges, [(path, plan) for plan in plans])

    assert codes == [0] * PROCESSES
    final = records.get(shared.id)
    assert list(final.received) == [ByteRange(0, per_writer * writers * SPAN)]
    assert final.state is UploadState.VERIFYING
    each = [ByteRange(turn * 2 * SPAN, (turn * 2 + 1) * SPAN) for turn in range(per_writer)]
    assert {tuple(records.get(upload.id).received) for upload in own} == {tuple(each)}


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


def test_processes_that_ask_for_the_same_jobs_make_each_once_and_claim_each_once(
    database: Database, tmp_path: Path
) -> None:
    records = UploadRecords(database)
    films = [replace(new_upload(), state=UploadState.COMPLETE) for _ in range(JOB_FILMS)]
    for film in films:
        records.add(film)
    path = tmp_path / "folder" / "sluice.db"
    reports = [tmp_path / f"report {number}" for number in range(PROCESSES)]
    names = [[f"worker {number} {letter}" for letter in "abc"] for number in range(PROCESSES)]

    codes = run_processes(claim_jobs, [(path, *plan) for plan in zip(names, reports, strict=True)])

    assert codes == [0] * PROCESSES
    claimed = [line for report in reports for line in report.read_text().splitlines()]
    assert sorted(claimed) == sorted(
        f"{film.id} {argument}" for film in films for argument in JOB_ARGUMENTS
    )
