"""Who polls the records looks only if something was committed, or after a while."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.core.errors import StorageFailed
from app.db.engine import Database
from app.db.waking import after_changes
from app.records.uploads import UploadRecords
from tests.records.making import new_sqlite, new_upload, sqlite

NEVER = 3600.0


@pytest.fixture
def looks() -> list[str]:
    return []


@pytest.fixture
def poll(in_file: Database, looks: list[str]) -> Callable[[], None]:
    mark = in_file.change_mark()
    return after_changes(lambda: looks.append("look"), mark, longest_seconds=NEVER)


def test_without_a_commit_nobody_looks_again(poll: Callable[[], None], looks: list[str]) -> None:
    for _ in range(5):
        poll()
    assert looks == ["look"]


def test_a_commit_of_this_process_is_seen(
    in_file: Database, poll: Callable[[], None], looks: list[str]
) -> None:
    poll()
    UploadRecords(in_file).add(new_upload())
    poll()
    poll()
    assert looks == ["look"] * 2


def test_a_commit_of_another_process_is_seen(
    tmp_path: Path, poll: Callable[[], None], looks: list[str]
) -> None:
    poll()
    with closing(sqlite(tmp_path / "folder" / "sluice.db")) as other:
        UploadRecords(other).add(new_upload())
    poll()
    assert looks == ["look"] * 2


def test_what_a_look_commits_itself_is_looked_at_again(database: Database) -> None:
    wanted = ["first", "second"]

    def look() -> str | None:
        if wanted:
            UploadRecords(database).add(new_upload())
        return wanted.pop(0) if wanted else "none"

    poll = after_changes(look, database.change_mark(), longest_seconds=NEVER)
    assert [poll(), poll(), poll()] == ["first", "second", "none"]


def test_a_look_that_failed_is_repeated(in_file: Database) -> None:
    results = iter([StorageFailed("the disk is full"), None])

    def look() -> int:
        if (error := next(results)) is not None:
            raise error
        return 0

    poll = after_changes(look, in_file.change_mark(), longest_seconds=NEVER)
    with pytest.raises(StorageFailed):
        poll()
    assert poll() == 0
    assert poll() is None


def test_a_look_that_found_something_is_repeated(database: Database) -> None:
    counts = iter([100, 7, 0])
    poll = after_changes(lambda: next(counts, -1), database.change_mark(), longest_seconds=NEVER)
    assert [poll(), poll(), poll()] == [100, 7, 0]


def test_what_becomes_due_by_itself_is_found(in_file: Database) -> None:
    poll = after_changes(lambda: "found", in_file.change_mark(), longest_seconds=0.0)
    assert [poll(), poll()] == ["found", "found"]


def test_a_database_that_cannot_be_read_differs_each_time(tmp_path: Path) -> None:
    file = tmp_path / "sluice.db"
    with closing(new_sqlite(file)) as database:
        content = file.read_bytes()
        mark = database.change_mark()
        file.write_bytes(b"no database" * 1000)
        assert mark() != mark()
        file.write_bytes(content)
        assert mark() == mark()
