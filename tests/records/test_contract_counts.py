"""How many uploads are unfinished, by state."""

from app.core.lifecycle import UploadState
from app.records.uploads import UploadRecords
from tests.records.making import NOW, new_upload


def test_unfinished_uploads_are_counted_by_state(records: UploadRecords) -> None:
    first, *_ = [records.add(new_upload(number))[0] for number in range(3)]
    records.move(first.id, UploadState.CANCELLED, NOW)
    assert records.count_active() == {
        UploadState.RECEIVING: 2,
        UploadState.HELD: 0,
        UploadState.VERIFYING: 0,
    }


def test_without_uploads_every_count_is_zero(records: UploadRecords) -> None:
    assert set(records.count_active().values()) == {0}
