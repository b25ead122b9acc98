"""Records announce each step once, and none that was not taken."""

import pytest

from app.core.lifecycle import IllegalTransition, UploadState
from app.core.ranges import ByteRange
from app.db.engine import Database
from app.records.uploads import UploadRecords
from tests.records.making import NOW, new_upload


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def records(database: Database, heard: list[str]) -> UploadRecords:
    return UploadRecords(database, heard.append)


def test_an_upload_is_announced_when_created_and_not_when_found(
    records: UploadRecords, heard: list[str]
) -> None:
    records.add(new_upload(key="mine"))
    records.add(new_upload(key="mine"))
    records.add_all([new_upload(), new_upload(key="mine"), new_upload()])
    assert heard == ["created"] * 3


def test_each_step_is_announced_once_even_if_two_try_it(
    records: UploadRecords, heard: list[str]
) -> None:
    upload, _ = records.add(new_upload())
    records.add_received(upload, ByteRange(0, 100), NOW)
    records.move(upload.id, UploadState.COMPLETE, NOW)
    with pytest.raises(IllegalTransition):
        records.move(upload.id, UploadState.COMPLETE, NOW)
    assert heard == ["created", "complete"]


def test_steps_of_several_uploads_are_announced_one_by_one(
    records: UploadRecords, heard: list[str]
) -> None:
    stored = [records.add(new_upload())[0].id for _ in range(2)]
    heard.clear()
    records.move_all(stored, UploadState.EXPIRED, NOW)
    assert heard == ["expired", "expired"]
