"""The database as one file: after the last process has ended, and copied while it changes."""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from app.records.uploads import UploadRecords
from tests.records.making import new_upload, sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sluice.db"


def log_bytes(path: Path) -> int:
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def test_the_last_checkpoint_leaves_no_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as left_open:  # Like a process that was killed.
        left_open.execute("PRAGMA journal_mode=WAL")
        left_open.execute("CREATE TABLE facts (fact)")
        assert log_bytes(path) > 0
        sqlite(path).checkpoint()
        assert log_bytes(path) == 0


def test_a_checkpoint_neither_fails_because_of_a_reader_nor_waits_long_for_it(path: Path) -> None:
    """Catches "database is locked", and a wait that the test's time limit ends."""
    database = sqlite(path)
    database.migrate()
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM uploads").fetchall()
        UploadRecords(database).add(new_upload())
        database.checkpoint()
    database.close()


def test_a_checkpoint_makes_no_database_where_there_is_none(path: Path) -> None:
    sqlite(path).checkpoint()
    assert not path.exists()


def test_a_checkpoint_of_a_file_that_is_no_database_does_not_fail(path: Path) -> None:
    """Catches a server whose stop ends in a traceback."""
    path.write_text("this is not a database, but a longer text than its header")
    sqlite(path).checkpoint()


def test_a_copy_made_while_others_write_is_consistent_and_one_file(
    path: Path, tmp_path: Path
) -> None:
    database = sqlite(path)
    database.migrate()
    records, is_enough = UploadRecords(database), Event()

    def write() -> None:
        while not is_enough.is_set():
            records.add(new_upload())

    writer = Thread(target=write)
    writer.start()
    copy = tmp_path / "copy.db"
    try:
        for _ in range(5):
            assert database.file is not None
            database.file.copy_to(copy)  # Over an earlier copy, too.
    finally:
        is_enough.set()
        writer.join()
        database.close()

    with closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert [found.name for found in tmp_path.glob("copy.db*")] == ["copy.db"]
    with closing(sqlite(copy)) as restored:
        restored.migrate()
        UploadRecords(restored).add(new_upload())
