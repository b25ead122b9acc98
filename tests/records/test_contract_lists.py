"""What every kind of records promises: lists of uploads."""

from datetime import datetime, timedelta

import pytest

from app.domain.lifecycle import ACTIVE, UploadState
from app.domain.ranges import ByteRange
from app.domain.upload import Upload, UploadId
from app.records.base import UploadRecords
from tests.records.making import NOW, at, new_upload


def complete(records: UploadRecords, upload: Upload, when: datetime) -> Upload:
    """`upload`, added and published at a time."""
    records.add(upload)
    records.move(upload.id, UploadState.VERIFYING, when)
    return records.move(upload.id, UploadState.COMPLETE, when)


def test_a_fingerprint_finds_the_newest_upload_of_that_file(records: UploadRecords) -> None:
    old = new_upload(fingerprint="f", created_at=at(1))
    new = new_upload(fingerprint="f", created_at=at(2))
    records.add(new)
    records.add(old)
    assert records.find_fingerprint("someone", "f", 100) == new


@pytest.mark.parametrize(
    ("owner", "fingerprint", "length"),
    [("other", "f", 100), ("someone", "g", 100), ("someone", "f", 101)],
)
def test_a_fingerprint_needs_the_same_owner_and_length(
    records: UploadRecords, owner: str, fingerprint: str, length: int
) -> None:
    records.add(new_upload(fingerprint="f"))
    assert records.find_fingerprint(owner, fingerprint, length) is None


@pytest.mark.parametrize("state", UploadState)
def test_a_fingerprint_finds_no_upload_that_is_gone(
    records: UploadRecords, state: UploadState
) -> None:
    upload, _ = records.add(new_upload(fingerprint="f"))
    steps = {
        UploadState.RECEIVING: [],
        UploadState.HELD: [UploadState.HELD],
        UploadState.VERIFYING: [UploadState.VERIFYING],
        UploadState.COMPLETE: [UploadState.VERIFYING, UploadState.COMPLETE],
        UploadState.DELETED: [UploadState.VERIFYING, UploadState.COMPLETE, UploadState.DELETED],
        UploadState.CANCELLED: [UploadState.CANCELLED],
        UploadState.EXPIRED: [UploadState.EXPIRED],
    }
    for step in steps[state]:
        records.move(upload.id, step, NOW)
    found = records.find_fingerprint("someone", "f", 100)
    is_expected = state in ACTIVE | {UploadState.COMPLETE}
    assert (found is not None) == is_expected


def test_active_uploads_are_listed_newest_first(records: UploadRecords) -> None:
    uploads = [new_upload(created_at=at(n)) for n in range(5)]
    for upload in uploads:
        records.add(upload)
    records.add(new_upload(owner="other"))
    records.move(uploads[1].id, UploadState.CANCELLED, at(9))
    records.add_received(uploads[2].id, ByteRange(0, 100), at(9))
    listed = records.active("someone", 10)
    assert [u.id for u in listed] == [uploads[n].id for n in (4, 3, 2, 0)]
    assert list(listed[2].received) == [ByteRange(0, 100)]
    assert [u.id for u in records.active("someone", 2)] == [uploads[4].id, uploads[3].id]


def test_videos_are_the_owners_complete_uploads_newest_first(records: UploadRecords) -> None:
    videos = [complete(records, new_upload(), at(n)) for n in (3, 1, 2)]
    complete(records, new_upload(owner="other"), at(4))
    records.add(new_upload())
    records.move(complete(records, new_upload(), at(5)).id, UploadState.DELETED, at(6))
    listed = records.videos("someone", 10, None)
    assert listed == [videos[0], videos[2], videos[1]]


@pytest.mark.parametrize("page", [1, 2, 3, 4, 12])
def test_pages_show_every_video_once_even_of_one_moment(records: UploadRecords, page: int) -> None:
    moments = [at(0), at(0.000001), at(0.000001), at(0.000001), at(0.000001), at(5), at(5), at(6)]
    videos = [complete(records, new_upload(), when) for when in moments]
    seen: list[UploadId] = []
    before = None
    while found := records.videos("someone", page, before):
        assert len(found) <= page
        assert len(seen) < len(videos), "a page repeats what an earlier one showed"
        seen += [video.id for video in found]
        last = found[-1]
        assert last.published_at is not None
        before = (last.published_at, last.id)
    expected = sorted(videos, key=lambda v: (v.published_at or NOW, v.id), reverse=True)
    assert seen == [video.id for video in expected]


def test_a_state_is_listed_longest_idle_first(records: UploadRecords) -> None:
    uploads = [new_upload(owner=f"owner-{n}", created_at=at(n)) for n in (3, 1, 2)]
    for upload in uploads:
        records.add(upload)
    records.add_received(uploads[1].id, ByteRange(0, 1), at(9))
    listed = records.in_state(UploadState.RECEIVING, 10)
    assert [u.id for u in listed] == [uploads[2].id, uploads[0].id, uploads[1].id]
    assert records.in_state(UploadState.RECEIVING, 2) == listed[:2]
    assert records.in_state(UploadState.COMPLETE, 10) == []


def test_a_state_is_listed_up_to_and_with_the_time_given(records: UploadRecords) -> None:
    for second in (1, 2, 3):
        records.add(new_upload(second, created_at=at(second)))
    listed = records.in_state(UploadState.RECEIVING, 10, idle_since=at(2))
    assert [u.active_at for u in listed] == [at(1), at(2)]


def test_videos_without_a_digest_are_listed_oldest_first(records: UploadRecords) -> None:
    videos = [complete(records, new_upload(), at(n)) for n in (2, 1, 3)]
    records.add(new_upload())
    records.set_sha256(videos[2].id, "00" * 32)
    assert records.without_sha256(10) == [videos[1], videos[0]]
    assert records.without_sha256(1) == [videos[1]]


def test_states_are_told_of_the_uploads_that_exist(records: UploadRecords) -> None:
    one, _ = records.add(new_upload())
    other, _ = records.add(new_upload())
    records.add(new_upload())
    records.move(other.id, UploadState.EXPIRED, at(1))
    assert records.states([one.id, other.id, UploadId("f" * 32)]) == {
        one.id: UploadState.RECEIVING,
        other.id: UploadState.EXPIRED,
    }
    assert records.states([]) == {}


@pytest.mark.parametrize("later", [0, 3600])
def test_activity_is_moved_but_not_beyond_now(records: UploadRecords, later: float) -> None:
    old, recent, future = (
        records.add(new_upload(created_at=at(seconds)))[0] for seconds in (-10_000, -10, 10_000)
    )
    records.shift_activity(timedelta(seconds=later), NOW)
    assert records.get(old.id).active_at == at(later - 10_000)
    assert records.get(recent.id).active_at == (NOW if later else at(-10))
    assert records.get(future.id).active_at == NOW
    assert records.get(old.id).created_at == at(-10_000)
