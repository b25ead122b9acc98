"""What the records promise: lists of uploads."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from app.core.lifecycle import ACTIVE, UploadState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId
from app.core.video_list import VideoList, VideoOrder
from app.records.uploads import UploadRecords
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
    assert records.find_fingerprints("someone", [("f", 100)]) == {("f", 100): new}


def test_several_fingerprints_are_found_by_owner_length_and_sender(records: UploadRecords) -> None:
    first = records.add(new_upload(fingerprint="f"))[0]
    other = records.add(new_upload(fingerprint="g"))[0]
    asked = [("f", 100), ("g", 100), ("f", 101), ("h", 100)]
    assert records.find_fingerprints("someone", asked) == {("f", 100): first, ("g", 100): other}
    assert records.find_fingerprints("other", asked) == {}
    assert records.find_fingerprints("someone", asked, sender="stranger") == {}
    assert records.find_fingerprints("someone", []) == {}


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
def test_a_fingerprint_does_not_find_ended_uploads(
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
    assert records.find_fingerprints("someone", [("f", 100)]).get(("f", 100)) == found
    is_expected = state in ACTIVE | {UploadState.COMPLETE}
    assert (found is not None) == is_expected


def test_active_uploads_are_listed_newest_first(records: UploadRecords) -> None:
    uploads = [new_upload(created_at=at(n)) for n in range(5)]
    for upload in uploads:
        records.add(upload)
    records.add(new_upload(owner="other"))
    records.move(uploads[1].id, UploadState.CANCELLED, at(9))
    records.add_received(uploads[2], ByteRange(0, 100), at(9))
    listed = records.active("someone", 10)
    assert [u.id for u in listed] == [uploads[n].id for n in (4, 3, 2, 0)]
    assert list(listed[2].received) == [ByteRange(0, 100)]
    assert [u.id for u in records.active("someone", 2)] == [uploads[4].id, uploads[3].id]


def test_videos_are_the_owners_complete_uploads_newest_first(records: UploadRecords) -> None:
    videos = [complete(records, new_upload(), at(n)) for n in (3, 1, 2)]
    complete(records, new_upload(owner="other"), at(4))
    records.add(new_upload())
    records.move(complete(records, new_upload(), at(5)).id, UploadState.DELETED, at(6))
    listed = records.videos("someone", VideoList(), 10)
    assert listed == [videos[0], videos[2], videos[1]]


MOMENTS = [0, 0.000001, 0.000001, 0.000001, 0.000001, 5, 5, 6]
NAMES = ["clip 2", "Clip 10", "été", "ete", "clip 2", "Zoo", "a" * 300, "a" * 299 + "b"]
LENGTHS = [7, 7, 7, 0, 1, 2**40, 3, 3]


@pytest.mark.parametrize("order", VideoOrder)
@pytest.mark.parametrize("page", [1, 2, 3, 12])
def test_pages_show_every_video_once_even_with_equal_times(
    records: UploadRecords, page: int, order: VideoOrder
) -> None:
    videos = [
        complete(records, replace(new_upload(length=length), filename=name), at(moment))
        for moment, name, length in zip(MOMENTS, NAMES, LENGTHS, strict=True)
    ]
    wanted, seen, after = VideoList(order=order), list[UploadId](), None
    while found := records.videos("someone", wanted, page, after):
        assert len(found) <= page
        assert len(seen) < len(videos), "a page repeats what an earlier one showed"
        seen += [video.id for video in found]
        after = order.position(found[-1])
    expected = sorted(videos, key=order.position, reverse=order.is_descending)
    assert seen == [video.id for video in expected]


@pytest.mark.parametrize("order", VideoOrder)
def test_pages_show_every_video_once_while_others_come_and_go(
    records: UploadRecords, order: VideoOrder
) -> None:
    def add(number: int) -> Upload:
        name = f"clip {number * 7919 % 101}"
        upload = replace(new_upload(length=number * 7919 % 97), filename=name)
        return complete(records, upload, at(number * 7919 % 89))

    staying, leaving = [add(n) for n in range(0, 40, 2)], [add(n) for n in range(1, 40, 2)]
    seen, after = list[UploadId](), None
    while found := records.videos("someone", VideoList(order=order), 3, after):
        seen += [video.id for video in found]
        after = order.position(found[-1])
        add(len(seen) + 50)
        if leaving:
            records.move(leaving.pop().id, UploadState.DELETED, at(99))
        assert len(seen) < 200
    assert len(seen) == len(set(seen))
    assert {video.id for video in staying} <= set(seen)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", {"Été à la Plage.MP4", "50%_off.mp4", "50 xoff.mp4", "STRASSE.mov", "ｆｕｌｌ.mkv"}),
        ("ete", {"Été à la Plage.MP4"}),
        ("PLAGE été", {"Été à la Plage.MP4"}),
        ("plage  mov", set()),
        ("mp4", {"Été à la Plage.MP4", "50%_off.mp4", "50 xoff.mp4"}),
        ("50%", {"50%_off.mp4"}),
        ("%", {"50%_off.mp4"}),
        ("_", {"50%_off.mp4"}),
        ("/", set()),
        ("straße", {"STRASSE.mov"}),
        ("full", {"ｆｕｌｌ.mkv"}),
        ("' OR 1=1 --", set()),
        ("\\", set()),
        ("😀" * 200, set()),
    ],
)
def test_a_search_finds_words_in_names(
    records: UploadRecords, search: str, found: set[str]
) -> None:
    for name in ("Été à la Plage.MP4", "50%_off.mp4", "50 xoff.mp4", "STRASSE.mov", "ｆｕｌｌ.mkv"):
        complete(records, replace(new_upload(), filename=name), NOW)
    complete(records, replace(new_upload(owner="other"), filename="ete 50% mp4 full"), NOW)
    for order in VideoOrder:
        wanted = VideoList.parse(search, order)
        assert {v.filename for v in records.videos("someone", wanted, 9)} == found


def test_a_renamed_video_is_found_and_sorted_by_its_new_name(records: UploadRecords) -> None:
    first = complete(records, replace(new_upload(), filename="b.mp4"), at(1))
    second = complete(records, replace(new_upload(), filename="c.mp4"), at(2))
    renamed = records.rename(second.id, "Ä.mp4")
    assert renamed == replace(second, filename="Ä.mp4")
    assert records.videos("someone", VideoList.parse("a.mp", "name"), 9) == [renamed]
    assert records.videos("someone", VideoList.parse("c", "name"), 9) == []
    assert records.videos("someone", VideoList.parse("", "name"), 9) == [renamed, first]


def test_a_state_is_listed_longest_idle_first(records: UploadRecords) -> None:
    uploads = [new_upload(owner=f"owner-{n}", created_at=at(n)) for n in (3, 1, 2)]
    for upload in uploads:
        records.add(upload)
    records.add_received(uploads[1], ByteRange(0, 1), at(9))
    listed = records.in_state(UploadState.RECEIVING, 10)
    assert [u.id for u in listed] == [uploads[2].id, uploads[0].id, uploads[1].id]
    assert records.in_state(UploadState.RECEIVING, 2) == listed[:2]
    assert records.in_state(UploadState.COMPLETE, 10) == []


def test_a_state_is_listed_up_to_and_including_the_given_time(records: UploadRecords) -> None:
    for second in (1, 2, 3):
        records.add(new_upload(second, created_at=at(second)))
    listed = records.in_state(UploadState.RECEIVING, 10, idle_since=at(2))
    assert [u.active_at for u in listed] == [at(1), at(2)]


def test_old_videos_of_an_owner_are_listed_oldest_first(records: UploadRecords) -> None:
    videos = [complete(records, new_upload(), at(n)) for n in (3, 1, 2)]
    complete(records, new_upload(owner="other"), at(1))
    records.add(new_upload(created_at=at(1)))
    assert records.older_videos("someone", at(2), limit=9) == [videos[1], videos[2]]
    assert records.older_videos("someone", at(3), limit=1) == [videos[1]]


def test_videos_without_a_digest_are_listed_oldest_first(records: UploadRecords) -> None:
    videos = [complete(records, new_upload(), at(n)) for n in (2, 1, 3)]
    records.add(new_upload())
    records.set_sha256(videos[2].id, "00" * 32)
    assert records.without_sha256(10) == [videos[1], videos[0]]
    assert records.without_sha256(1) == [videos[1]]


def test_videos_with_another_checksum_are_listed_once_they_are_idle_or_at_once_if_it_is_wanted(
    records: UploadRecords,
) -> None:
    bare, *others = (complete(records, new_upload(), at(n)) for n in (5, 1, 2, 3))
    for video in others:
        records._set(video.id, crc32c="AAAAAA==")

    def listed(limit: int = 10, idle_since: datetime | None = None) -> list[UploadId]:
        return [video.id for video in records.without_sha256(limit, idle_since=idle_since)]

    assert listed() == [bare.id]
    records.want_sha256([others[2].id])
    assert listed() == [others[2].id, bare.id]
    assert listed(idle_since=at(1)) == [others[2].id, bare.id, others[0].id]
    assert listed(2, at(3)) == [others[2].id, bare.id]
    records.set_sha256(others[2].id, "00" * 32)
    assert listed(idle_since=at(3)) == [bare.id, others[0].id, others[1].id]


def test_states_are_returned_for_existing_uploads(records: UploadRecords) -> None:
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
def test_activity_is_moved_but_not_into_the_future(records: UploadRecords, later: float) -> None:
    old, recent, future = (
        records.add(new_upload(created_at=at(seconds)))[0] for seconds in (-10_000, -10, 10_000)
    )
    records.shift_activity(timedelta(seconds=later), NOW, videos_later=timedelta(0))
    assert records.get(old.id).active_at == at(later - 10_000)
    assert records.get(recent.id).active_at == (NOW if later else at(-10))
    assert records.get(future.id).active_at == NOW
    assert records.get(old.id).created_at == at(-10_000)


@pytest.mark.parametrize("videos_later", [0, 3600])
def test_videos_are_moved_by_a_time_of_their_own(
    records: UploadRecords, videos_later: float
) -> None:
    old, future = (complete(records, new_upload(), at(seconds)) for seconds in (-10_000, 10_000))
    shift = timedelta(seconds=videos_later)
    records.shift_activity(timedelta(seconds=7200), NOW, videos_later=shift)
    assert records.get(old.id).active_at == at(videos_later - 10_000)
    assert records.get(future.id).active_at == NOW
