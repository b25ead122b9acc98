"""SQLite's errors become errors of the domain."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError

from app.core.errors import NoRoom, ServerBusy, StorageFailed
from app.core.upload import Upload
from app.db import sqlite as sqlite_file
from app.db.engine import Database
from app.db.errors import as_upload_error
from app.records.uploads import UploadRecords
from tests.records.making import new_upload, sqlite


@pytest.fixture
def database(in_file: Database) -> Database:
    return in_file


@contextmanager
def cramped(database: Database) -> Iterator[None]:
    """The database may not grow, in any of its connections."""
    with database.write() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    yield
    with database.write() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")


def test_a_full_disk_is_no_room_until_space_is_freed(database: Database) -> None:
    records = UploadRecords(database)
    large = new_upload(fingerprint="x" * 100_000)
    with cramped(database), pytest.raises(NoRoom):
        records.add(large)
    assert records.add(large) == (large, True)


def test_a_database_in_use_is_busy(database: Database, tmp_path: Path) -> None:
    impatient = sqlite(tmp_path / "folder" / "sluice.db", busy_seconds=0.001)
    with database.write(), closing(impatient) as other:
        with pytest.raises(ServerBusy), other.write():
            pass
        with other.read() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SQLITE_FULL", NoRoom),
        ("SQLITE_IOERR_SHMSIZE", NoRoom),
        ("SQLITE_IOERR_WRITE", StorageFailed),
        ("SQLITE_IOERR_FSYNC", StorageFailed),
        ("SQLITE_READONLY_DBMOVED", StorageFailed),
        ("SQLITE_CANTOPEN", StorageFailed),
        ("SQLITE_CORRUPT", StorageFailed),
        ("SQLITE_NOTADB", StorageFailed),
        ("SQLITE_BUSY_SNAPSHOT", ServerBusy),
        ("SQLITE_LOCKED", ServerBusy),
        ("SQLITE_ERROR", type(None)),
        ("SQLITE_CONSTRAINT_UNIQUE", type(None)),
        ("SQLITE_MISUSE", type(None)),
    ],
)
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_each_result_code_has_its_error(name: str, expected: type, is_wrapped: bool) -> None:
    plain = sqlite3.OperationalError("what happened")
    plain.sqlite_errorcode = getattr(sqlite3, name)
    error = OperationalError("SELECT", {}, plain) if is_wrapped else plain
    assert type(as_upload_error(error)) is expected


def test_constraint_errors_and_bugs_are_not_translated(database: Database) -> None:
    records = UploadRecords(database)
    upload, _ = records.add(new_upload())
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.exec_driver_sql("INSERT INTO uploads SELECT * FROM uploads")
    with pytest.raises(OperationalError), database.read() as connection:
        connection.exec_driver_sql("SELECT * FROM no_such_table")
    assert records.get(upload.id) == upload


def test_a_read_only_connection_is_not_kept(database: Database) -> None:
    """SQLite opens files of a read-only disk like this, and never writes with that connection."""

    def refuse_writes(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA query_only=ON")

    records = UploadRecords(database)
    with database.read() as connection:
        refuse_writes(connection)
    with pytest.raises(StorageFailed, match="readonly"):
        records.add(new_upload())
    upload, is_new = records.add(new_upload())
    assert is_new
    assert records.get(upload.id) == upload


def test_a_file_system_without_shared_memory_is_reported_at_once(tmp_path: Path) -> None:
    """SQLite's unix-none replaces a network file system: it cannot share memory either."""
    uri = f"file:{tmp_path}/sluice.db?vfs=unix-none"
    with (
        closing(sqlite3.connect(uri, uri=True)) as connection,
        closing(connection.cursor()) as cursor,
        pytest.raises(StorageFailed, match="SLUICE_DATA_DIR on a local disk"),
    ):
        sqlite_file._use_write_ahead_log(cursor, sqlite_file.BUSY_SECONDS)


def test_only_a_locked_database_is_retried(tmp_path: Path) -> None:
    path = tmp_path / "sluice.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    uri = f"file:{path}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True)) as connection,
        closing(_Counting(connection)) as cursor,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        sqlite_file._use_write_ahead_log(cursor, sqlite_file.BUSY_SECONDS)
    assert cursor.count == 1


class _Counting(sqlite3.Cursor):
    """Counts the statements it executes."""

    count = 0

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        self.count += 1
        return super().execute(sql, parameters)


def test_a_file_that_is_not_a_database_is_a_storage_failure(tmp_path: Path) -> None:
    (tmp_path / "sluice.db").write_bytes(b"this is no database" * 1000)
    database = sqlite(tmp_path / "sluice.db")
    with pytest.raises(StorageFailed, match="not a database"):
        database.migrate()
    with pytest.raises(StorageFailed), database.read():
        pass


def test_a_database_that_cannot_be_created_is_a_storage_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match="cannot be opened"):
        sqlite(tmp_path / "file" / "sluice.db").migrate()


# ---- who may read it -----------------------------------------------------------------------------


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("usual_umask")
def test_only_its_owner_can_read_a_database(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with closing(sqlite(folder / "sluice.db")) as database:
        database.migrate()
        assert {path.name: mode(path) for path in folder.iterdir()} == {
            "sluice.db": 0o600,
            "sluice.db-wal": 0o600,
            "sluice.db-shm": 0o600,
        }
        assert mode(folder) == 0o700
        assert database.file is not None
        database.file.copy_to(folder / "copy.db")
        assert mode(folder / "copy.db") == 0o600


@pytest.mark.usefixtures("usual_umask")
def test_a_database_readable_by_others_is_closed_to_them(tmp_path: Path) -> None:
    names = ("sluice.db", "sluice.db-wal", "sluice.db-shm")
    with closing(sqlite(tmp_path / "sluice.db")) as older:
        older.migrate()
        for name in names:
            (tmp_path / name).chmod(0o644)
        with closing(sqlite(tmp_path / "sluice.db")) as newer:
            newer.migrate()
        assert {mode(tmp_path / name) for name in names} == {0o600}
        UploadRecords(older).add(new_upload())


def test_a_freed_key_can_be_used_at_once(database: Database) -> None:
    """The upload that has the key is removed, for lack of space, right after the conflict."""
    in_the_way, upload = new_upload(key="same"), new_upload(key="same")

    class Records(UploadRecords):
        def find(self, owner: str, client_key: str) -> Upload | None:
            self.remove(in_the_way.id)
            return super().find(owner, client_key)

    records = Records(database)
    records.add(in_the_way)
    assert records.add(upload) == (upload, True)
    assert records.get(upload.id) == upload
