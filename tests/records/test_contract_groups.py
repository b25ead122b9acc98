"""What the records promise: several uploads in one step."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.errors import UploadNotFound
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import Upload, UploadId
from app.core.video_list import VideoList
from app.records.uploads import UploadRecords
from tests.records.making import NOW, at, new_upload
from tests.records.test_contract import in_threads

UNKNOWN = UploadId("f" * 32)


def covered(*, key: str | None = None, owner: str = "someone") -> Upload:
    """An upload with all of its 100 bytes."""
    upload = new_upload(key=key, owner=owner)
    received = RangeSet.of([ByteRange(0, 100)])
    return replace(upload, received=received, state=UploadState.VERIFYING)


def test_several_uploads_are_added_unchanged(records: UploadRecords) -> None:
    uploads = [covered() for _ in range(5)]
    assert records.add_all(uploads) == [(upload, True) for upload in uploads]
    assert [records.get(upload.id) for upload in uploads] == uploads
    assert records.add_all([]) == []


def test_a_known_key_in_a_group_returns_the_earlier_upload(records: UploadRecords) -> None:
    earlier = covered(key="known")
    records.add(earlier)
    fresh, late = covered(), covered(key="known")
    assert records.add_all([fresh, late]) == [(fresh, True), (earlier, False)]
    with pytest.raises(UploadNotFound):
        records.get(late.id)


def test_of_two_uploads_with_one_key_the_first_is_kept(records: UploadRecords) -> None:
    first, second = covered(key="twin"), covered(key="twin")
    assert records.add_all([first, second]) == [(first, True), (first, False)]


def test_keys_of_different_owners_do_not_clash(records: UploadRecords) -> None:
    mine, yours = covered(key="same", owner="me"), covered(key="same", owner="you")
    records.add(mine)
    assert records.add_all([yours]) == [(yours, True)]


def test_exactly_one_of_many_adding_the_same_keys_succeeds(records: UploadRecords) -> None:
    groups = [[covered(key=f"key {number}") for number in range(20)] for _ in range(4)]
    outcomes = in_threads(4, lambda number: records.add_all(groups[number]))
    assert all(isinstance(outcome, list) for outcome in outcomes), outcomes
    found = [[upload.id for upload, _ in outcome] for outcome in outcomes]  # type: ignore[attr-defined]
    assert all(ids == found[0] for ids in found)


def test_several_uploads_take_a_step_and_keep_their_order(records: UploadRecords) -> None:
    uploads = [covered() for _ in range(5)]
    records.add_all(uploads)
    ids = [upload.id for upload in uploads]
    moved = records.move_all(ids, UploadState.COMPLETE, at(1))
    assert [records.get(upload_id) for upload_id in ids] == moved
    microsecond = timedelta(microseconds=1)
    assert [m.published_at for m in moved] == [at(1) + microsecond * n for n in range(5)]
    assert [video.id for video in records.videos("someone", VideoList(), 9)] == ids[::-1]


def test_if_one_may_not_take_the_step_none_does(records: UploadRecords) -> None:
    good, ended = covered(), covered()
    records.add_all([good, ended])
    records.move(ended.id, UploadState.CANCELLED, NOW)
    with pytest.raises(IllegalTransition):
        records.move_all([good.id, ended.id], UploadState.COMPLETE, at(1))
    with pytest.raises(UploadNotFound):
        records.move_all([good.id, UNKNOWN], UploadState.COMPLETE, at(1))
    assert records.get(good.id) == good


@pytest.mark.parametrize("is_alone", [True, False])
def test_an_ended_upload_passes_its_key_to_a_new_one(
    records: UploadRecords, is_alone: bool
) -> None:
    for _ in range(3):
        new = covered(key="known")
        if is_alone:
            assert records.add(new, renews_key=True) == (new, True)
        else:
            assert records.add_all([new, covered(key="known")]) == [(new, True), (new, False)]
        assert records.find("someone", "known") == new
        ended = records.move(new.id, UploadState.CANCELLED, NOW)
    assert records.add(covered(key="known")) == (ended, False)


def test_only_an_ended_upload_gives_up_its_key(records: UploadRecords) -> None:
    living, ended = covered(key="living"), covered(key="ended")
    records.add_all([living, ended])
    records.move(ended.id, UploadState.EXPIRED, NOW)
    for key in ("living", "ended", "unknown"):
        records.release_key("someone else", key)
    assert records.find("someone", "ended") is not None
    for key in ("living", "ended", "unknown"):
        records.release_key("someone", key)
    assert records.find("someone", "living") == living
    assert records.find("someone", "ended") is None
    assert records.get(ended.id).state is UploadState.EXPIRED
    assert records.add(covered(key="living"), renews_key=True) == (living, False)


def test_a_recorded_upload_that_ended_meanwhile_is_unchanged(
    records: UploadRecords,
) -> None:
    known = covered(key="known")
    records.add_all([known])
    ended = records.move(known.id, UploadState.CANCELLED, NOW)
    assert records.add_all([known]) == [(ended, False)]
