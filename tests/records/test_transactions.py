"""What a transaction refuses, on both databases."""

from __future__ import annotations

from threading import Thread

import pytest
from sqlalchemy import text

from app.db.engine import Database


def test_a_write_inside_a_write_is_refused(database: Database) -> None:
    with (
        database.write(),
        pytest.raises(RuntimeError, match="inside another"),
        database.write(),
    ):
        pass


def test_a_thread_can_write_again_after_a_refusal_and_after_an_error(database: Database) -> None:
    with pytest.raises(RuntimeError), database.write(), database.write():
        pass
    with pytest.raises(ZeroDivisionError), database.write():
        _ = 1 // 0
    with database.write() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1


def test_two_threads_write_at_the_same_time(database: Database) -> None:
    written = []

    def write() -> None:
        with database.write() as connection:
            written.append(connection.execute(text("SELECT 1")).scalar_one())

    with database.write():
        other = Thread(target=write)
        other.start()
    other.join()
    assert written == [1]
