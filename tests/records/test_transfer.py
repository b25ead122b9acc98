"""Records move from one database to another, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from app.core.errors import StorageFailed
from app.core.ranges import ByteRange, RangeSet
from app.db.engine import Database
from app.db.tables import audit
from app.db.transfer import ROWS_AT_ONCE, TABLES, CopyRefused, copy_records, require_finished
from app.records.uploads import UploadRecords
from tests.records.making import at, new_sqlite, new_upload

MANY = ROWS_AT_ONCE * 2 + 1


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Database]:
    """Another database in a file."""
    with closing(new_sqlite(tmp_path / "other" / "sluice.db")) as database:
        yield database


def fill(database: Database) -> UploadRecords:
    """More uploads than a transaction copies, and entries that the database numbers."""
    records = UploadRecords(database)
    received = RangeSet.of([ByteRange(0, 10), ByteRange(20, 30)])
    records.add_all(
        [
            replace(new_upload(number + 1), received=received, filename=f"ÿ{number} 🎬.mp4")
            for number in range(MANY)
        ]
    )
    for action in ("first", "second", "third"):
        note(database, action)
    return records


def note(database: Database, action: str) -> int:
    """Add an entry to the audit log; its number."""
    entry = dict.fromkeys(("actor", "actor_name", "address", "subject", "details"), "")
    with database.write() as connection:
        result = connection.execute(insert(audit).values(**entry, action=action, at=at(0)))
        assert result.inserted_primary_key is not None
        return int(result.inserted_primary_key[0])


def content(database: Database) -> dict[str, list[tuple[object, ...]]]:
    with database.read() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table))), key=repr)
            for table in TABLES
        }


def test_everything_moves_to_a_server_and_back(
    in_file: Database, on_server: Database, other: Database
) -> None:
    records = fill(in_file)
    count = copy_records(in_file, on_server)
    assert content(on_server) == content(in_file)
    assert count == sum(map(len, content(in_file).values())) >= MANY + 4
    assert note(on_server, "fourth") == 4
    upload = records.get(new_upload(1).id)
    moved = UploadRecords(on_server).add_received(upload, ByteRange(10, 20), at(1))
    assert moved.received == RangeSet.of([ByteRange(0, 30)])
    copy_records(on_server, other)
    assert content(other) == content(on_server)
    assert note(other, "fifth") == 5


class Killed(Exception):
    """What a signal does in the middle of a copy."""


def cut_off(source: Database, target: Database) -> None:
    """Begin a copy that ends with some of the uploads."""

    def stop(table: str, count: int) -> None:
        if table == "uploads" and count > ROWS_AT_ONCE:
            raise Killed

    with pytest.raises(Killed):
        copy_records(source, target, tell=stop)


def test_a_copy_that_was_cut_off_goes_on(in_file: Database, on_server: Database) -> None:
    fill(in_file)
    cut_off(in_file, on_server)
    with pytest.raises(StorageFailed, match="cut off"):
        require_finished(on_server)
    counts: list[int] = []
    copy_records(in_file, on_server, tell=lambda _, count: counts.append(count))
    assert MANY in counts
    assert ROWS_AT_ONCE not in counts, "nothing is copied twice"
    assert content(on_server) == content(in_file)
    require_finished(on_server)


def test_a_source_that_changed_before_the_copy_went_on_is_noticed(
    in_file: Database, on_server: Database
) -> None:
    records = fill(in_file)
    cut_off(in_file, on_server)
    records.rename(new_upload(1).id, "renamed meanwhile.mp4")
    with pytest.raises(CopyRefused, match="uploads has changed"):
        copy_records(in_file, on_server)
    with pytest.raises(StorageFailed):
        require_finished(on_server)


def test_a_copy_is_of_one_moment(in_file: Database, other: Database) -> None:
    records = fill(in_file)
    before = content(in_file)

    def rename(_table: str, _count: int) -> None:
        records.rename(new_upload(1).id, "renamed meanwhile.mp4")

    copy_records(in_file, other, tell=rename)
    assert content(other) == before


def test_a_target_with_records_is_refused(in_file: Database, on_server: Database) -> None:
    UploadRecords(on_server).add(new_upload())
    before = content(on_server)
    with pytest.raises(CopyRefused, match="uploads"):
        copy_records(in_file, on_server)
    assert content(on_server) == before
    require_finished(on_server)
