"""Writers that wait at the same time share a commit, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from app.db.engine import MOST_IN_A_GROUP, GroupCommit

WRITERS = 20


class Broken(Exception):
    """The error of a writer or a commit."""


class Book:
    """A table of numbers, and how often it was committed."""

    def __init__(self, path: Path) -> None:
        self.engine: Engine = create_engine(f"sqlite:///{path}", pool_size=WRITERS)
        self.commits = 0
        self.commit_error: Exception | None = None
        self.group_commit = GroupCommit(self.begin)

        @event.listens_for(self.engine, "connect")
        def leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
            connection.isolation_level = None

        @event.listens_for(self.engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        with self.begin() as connection:
            connection.execute(text("CREATE TABLE numbers (number INTEGER PRIMARY KEY)"))
        self.commits = 0

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            yield connection
            if self.commit_error is not None:
                raise self.commit_error
        self.commits += 1

    def write(self, number: int) -> None:
        with self.group_commit.join() as connection:
            connection.execute(text("INSERT INTO numbers VALUES (:number)"), {"number": number})
            if number < 0:
                raise Broken

    def numbers(self) -> set[int]:
        with self.engine.connect() as connection:
            return {row[0] for row in connection.execute(text("SELECT number FROM numbers"))}


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "numbers.db")
    yield book
    book.engine.dispose()


def write_while_another_works(book: Book, numbers: list[int]) -> list[BaseException]:
    """Run all at once while another writer holds the transaction; what they raised."""
    errors: list[BaseException] = []
    is_working, may_go_on = Event(), Event()

    def first() -> None:
        with suppress(Broken), book.group_commit.join():
            is_working.set()
            may_go_on.wait()

    def write(number: int) -> None:
        try:
            book.write(number)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
            errors.append(error)

    threads = [Thread(target=first), *(Thread(target=write, args=(n,)) for n in numbers)]
    threads[0].start()
    is_working.wait()
    for thread in threads[1:]:
        thread.start()
    while book.group_commit._waiting < len(numbers):
        pass
    may_go_on.set()
    for thread in threads:
        thread.join()
    return errors


def test_waiting_writers_are_committed_together(book: Book) -> None:
    assert write_while_another_works(book, list(range(WRITERS))) == []
    assert book.numbers() == set(range(WRITERS))
    assert book.commits == 1


def test_a_single_writer_is_committed_at_once(book: Book) -> None:
    for number in range(3):
        book.write(number)
        assert book.numbers() == set(range(number + 1))
    assert book.commits == 3


def test_a_failing_writer_rolls_back_only_its_own_work(book: Book) -> None:
    errors = write_while_another_works(book, [1, -2, 3, -4])
    assert [type(error) for error in errors] == [Broken, Broken]
    assert book.numbers() == {1, 3}


@pytest.mark.parametrize("numbers", [[-1], [1, -1], [-1, 1]])
def test_a_failing_writer_leaves_no_one_waiting(book: Book, numbers: list[int]) -> None:
    write_while_another_works(book, numbers)
    book.write(7)
    assert book.numbers() == {number for number in numbers if number > 0} | {7}


def test_a_failed_commit_is_an_error_for_every_writer(book: Book) -> None:
    book.commit_error = Broken("the disk is full")
    errors = write_while_another_works(book, [1, 2, 3])
    assert [str(error) for error in errors] == ["the disk is full"] * 3
    assert book.numbers() == set()
    book.commit_error = None
    book.write(4)
    assert book.numbers() == {4}


def test_a_group_is_bounded_however_many_writers_arrive(tmp_path: Path) -> None:
    book = Book(tmp_path / "many.db")
    count = MOST_IN_A_GROUP * 2
    assert write_while_another_works(book, list(range(count))) == []
    assert book.numbers() == set(range(count))
    assert book.commits == 3
    book.engine.dispose()


def test_threads_that_write_without_pause_all_finish(book: Book) -> None:
    barrier = Barrier(WRITERS)

    def write_some(first: int) -> None:
        barrier.wait()
        for number in range(first, first + 10):
            book.write(number)

    threads = [Thread(target=write_some, args=(n * 10,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert book.numbers() == set(range(WRITERS * 10))
    assert book.commits < WRITERS * 10
