"""What the records promise: single uploads and their lifecycle."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from app.core.errors import ChunkMismatch, TooManyGaps, UploadConflict, UploadGone, UploadNotFound
from app.core.lifecycle import IllegalTransition, UploadState
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import MAX_RANGES, Upload, UploadId
from app.records.uploads import UploadRecords
from tests.records.making import NOW, at, new_upload

UNKNOWN = UploadId("f" * 32)


def in_threads(count: int, call: Callable[[int], object]) -> list[object]:
    """What `call` returned or raised in each of `count` threads that start together."""
    barrier = Barrier(count)

    def run(number: int) -> object:
        barrier.wait()
        try:
            return call(number)
        except Exception as error:  # noqa: BLE001 - the outcomes are compared by the tests
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_an_upload_is_stored_as_it_was_added(records: UploadRecords) -> None:
    upload = new_upload(fingerprint="a:1:2", length=1 << 40)
    assert records.add(upload) == (upload, True)
    assert records.get(upload.id) == upload


def test_an_upload_is_added_with_its_received_ranges(records: UploadRecords) -> None:
    received = RangeSet.of([ByteRange(0, 60), ByteRange(70, 100)])
    upload = replace(new_upload(), received=received, state=UploadState.RECEIVING)
    records.add(upload)
    assert records.get(upload.id) == upload
    after = records.add_received(upload, ByteRange(60, 70), at(1))
    assert after.state is UploadState.VERIFYING


def test_an_unknown_id_is_not_found(records: UploadRecords) -> None:
    with pytest.raises(UploadNotFound):
        records.get(UNKNOWN)
    with pytest.raises(UploadNotFound):
        records.add_received(new_upload(), ByteRange(0, 1), NOW)
    with pytest.raises(UploadNotFound):
        records.move(UNKNOWN, UploadState.CANCELLED, NOW)
    with pytest.raises(UploadNotFound):
        records.declare_length(UNKNOWN, 1, NOW)


def test_a_known_client_key_returns_the_earlier_upload(records: UploadRecords) -> None:
    first, second = new_upload(key="k"), new_upload(key="k", length=7)
    records.add(first)
    assert records.add(second) == (first, False)
    with pytest.raises(UploadNotFound):
        records.get(second.id)


def test_client_keys_of_different_owners_are_different_keys(records: UploadRecords) -> None:
    one, other = new_upload(key="k", owner="one"), new_upload(key="k", owner="other")
    assert records.add(one)[1]
    assert records.add(other)[1]
    assert records.find("one", "k") == one
    assert records.find("other", "k") == other
    assert records.find("third", "k") is None


def test_concurrent_additions_with_one_client_key_get_one_upload(records: UploadRecords) -> None:
    uploads = [new_upload(key="k") for _ in range(8)]
    outcomes = in_threads(8, lambda number: records.add(uploads[number]))
    winners = [outcome for outcome in outcomes if isinstance(outcome, tuple) and outcome[1]]
    assert len(winners) == 1
    assert {outcome[0] for outcome in outcomes if isinstance(outcome, tuple)} == {winners[0][0]}
    assert len(outcomes) == 8


def test_too_many_gaps_are_counted_in_the_record_and_not_in_an_old_copy(
    records: UploadRecords,
) -> None:
    received = RangeSet.of([ByteRange(4 * place, 4 * place + 1) for place in range(MAX_RANGES)])
    upload = replace(new_upload(length=5 * MAX_RANGES), received=received)
    records.add(upload)
    records.add_received(upload, ByteRange(1, 4), at(1))
    end = 5 * MAX_RANGES
    after = records.add_received(upload, ByteRange(end - 2, end), at(2))
    assert len(after.received) == MAX_RANGES
    with pytest.raises(TooManyGaps):
        records.add_received(after, ByteRange(end - 5, end - 4), at(3))


def test_received_ranges_are_merged_and_are_activity(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    records.add_received(upload, ByteRange(20, 30), at(1))
    records.add_received(upload, ByteRange(0, 10), at(2))
    records.add_received(upload, ByteRange(40, 50), at(3))
    after = records.add_received(upload, ByteRange(5, 40), at(4))
    assert after == records.get(upload.id)
    assert list(after.received) == [ByteRange(0, 50)]
    assert (after.active_at, after.created_at) == (at(4), NOW)
    assert after.state is UploadState.RECEIVING


def test_the_same_range_counts_once(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    for second in range(3):
        after = records.add_received(upload, ByteRange(0, 10), at(second))
    assert after.received.total == 10


def test_offsets_beyond_32_bits_are_kept(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(length=1 << 43))
    span = ByteRange((1 << 43) - 5, (1 << 43) - 1)
    records.add_received(upload, span, at(1))
    assert list(records.get(upload.id).received) == [span]


def test_the_last_missing_range_moves_to_verifying(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    records.add_received(upload, ByteRange(50, 100), at(1))
    after = records.add_received(upload, ByteRange(0, 50), at(2))
    assert after.state is UploadState.VERIFYING
    assert records.get(upload.id) == after


def test_an_empty_file_moves_to_verifying_with_its_empty_chunk(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(length=0))
    assert records.get(upload.id).state is UploadState.RECEIVING
    after = records.add_received(upload, ByteRange(0, 0), at(1))
    assert after.state is UploadState.VERIFYING
    assert list(records.get(upload.id).received) == []


@pytest.mark.parametrize("end", [UploadState.CANCELLED, UploadState.EXPIRED])
def test_nothing_is_received_after_the_end(records: UploadRecords, end: UploadState) -> None:
    upload, _ = records.add(new_upload())
    ended = records.move(upload.id, end, at(1))
    with pytest.raises(UploadGone):
        records.add_received(upload, ByteRange(0, 10), at(2))
    with pytest.raises(UploadGone):
        records.declare_length(upload.id, 100, at(2))
    assert records.get(upload.id) == ended


def test_a_length_is_declared_once(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(length=None))
    records.add_received(upload, ByteRange(0, 10), at(1))
    with pytest.raises(ChunkMismatch):
        records.declare_length(upload.id, 9, at(2))
    assert records.declare_length(upload.id, 20, at(3)).state is UploadState.RECEIVING
    with pytest.raises(UploadConflict):
        records.declare_length(upload.id, 21, at(4))
    assert records.get(upload.id).length == 20
    assert records.get(upload.id).active_at == at(3)


def test_declaring_the_received_length_moves_to_verifying(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(length=None))
    records.add_received(upload, ByteRange(0, 10), at(1))
    assert records.declare_length(upload.id, 10, at(2)).state is UploadState.VERIFYING
    assert records.get(upload.id).state is UploadState.VERIFYING


def test_completion_records_its_time(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    records.move(upload.id, UploadState.VERIFYING, at(1))
    complete = records.move(upload.id, UploadState.COMPLETE, at(2))
    assert complete == records.get(upload.id)
    assert (complete.published_at, complete.active_at) == (at(2), at(2))


def test_an_illegal_step_changes_nothing(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    with pytest.raises(IllegalTransition):
        records.move(upload.id, UploadState.COMPLETE, at(1))
    assert records.get(upload.id) == upload


def test_exactly_one_of_many_concurrent_steps_succeeds(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    outcomes = in_threads(8, lambda n: records.move(upload.id, UploadState.EXPIRED, at(n)))
    winners = [outcome for outcome in outcomes if isinstance(outcome, Upload)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, IllegalTransition)]
    assert (len(winners), len(losers)) == (1, 7)
    assert records.get(upload.id) == winners[0]


def test_exactly_one_of_two_different_ends_succeeds(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    ends = [UploadState.VERIFYING, UploadState.CANCELLED, UploadState.EXPIRED]
    outcomes = in_threads(3, lambda n: records.move(upload.id, ends[n], at(n)))
    final = records.get(upload.id)
    # Cancelling and expiring are also steps from verifying: at most one more may follow.
    assert final in outcomes
    assert final.state in ends
    assert sum(isinstance(outcome, IllegalTransition) for outcome in outcomes) in {1, 2}


def test_a_step_for_idle_uploads_is_refused_after_activity(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    records.add_received(upload, ByteRange(0, 1), at(10))
    with pytest.raises(IllegalTransition):
        records.move(upload.id, UploadState.EXPIRED, at(20), idle_since=at(9))
    assert records.get(upload.id).state is UploadState.RECEIVING
    moved = records.move(upload.id, UploadState.EXPIRED, at(20), idle_since=at(10))
    assert moved.state is UploadState.EXPIRED


def test_concurrent_receipts_lose_nothing(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(length=160))
    outcomes = in_threads(
        16, lambda n: records.add_received(upload, ByteRange(n * 10, n * 10 + 10), at(n))
    )
    assert [outcome for outcome in outcomes if not isinstance(outcome, Upload)] == []
    assert list(records.get(upload.id).received) == [ByteRange(0, 160)]
    started = [o for o in outcomes if isinstance(o, Upload) and o.state is UploadState.VERIFYING]
    assert len(started) == 1


def test_an_upload_can_be_named_late_unless_it_has_ended(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    assert records.rename(upload.id, "film.mp4").filename == "film.mp4"
    assert records.get(upload.id).filename == "film.mp4"
    records.move(upload.id, UploadState.CANCELLED, at(1))
    with pytest.raises(UploadGone):
        records.rename(upload.id, "other.mp4")
    with pytest.raises(UploadNotFound):
        records.rename(UNKNOWN, "other.mp4")


def test_a_forgotten_key_is_free_for_another_upload(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(key="k"))
    records.forget_key(upload.id)
    assert records.find(upload.owner, "k") is None
    assert records.get(upload.id).client_key == upload.id
    assert records.add(new_upload(key="k"))[1]


def test_a_digest_is_recorded(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload())
    records.set_sha256(upload.id, "ab" * 32)
    assert records.get(upload.id) == replace(upload, sha256="ab" * 32)


def test_a_removed_upload_leaves_no_trace(records: UploadRecords) -> None:
    upload, _ = records.add(new_upload(key="k"))
    records.add_received(upload, ByteRange(0, 10), at(1))
    records.remove(upload.id)
    records.remove(upload.id)
    with pytest.raises(UploadNotFound):
        records.get(upload.id)
    again = replace(upload, created_at=at(5), active_at=at(5))
    assert records.add(again) == (again, True)
    assert list(records.get(upload.id).received) == []
