"""What an `Upload` makes of bytes, lengths and ids."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from app.core.crc32c import RangeSums, in_base64
from app.core.errors import (
    ChunkMismatch,
    TooManyGaps,
    UploadConflict,
    UploadGone,
    UploadNotFound,
)
from app.core.lifecycle import GONE, UploadState
from app.core.ranges import ByteRange, RangeSet
from app.core.upload import (
    LEAST_AHEAD_BYTES,
    MAX_RANGES,
    MOST_AHEAD_BYTES,
    PROGRESS_BYTES,
    Upload,
    UploadId,
    parse_upload_id,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
GOOD_ID = "0123456789abcdef" * 2


def upload_of(length: int | None, *received: tuple[int, int]) -> Upload:
    return Upload(
        id=UploadId(GOOD_ID),
        owner="",
        filename="a.mp4",
        length=length,
        client_key="key",
        created_at=NOW,
        active_at=NOW,
        received=RangeSet.of(ByteRange(*pair) for pair in received),
    )


def test_a_valid_id_is_accepted_unchanged() -> None:
    assert parse_upload_id(GOOD_ID) == GOOD_ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD_ID[:-1],
        GOOD_ID + "0",
        GOOD_ID + "\n",
        "\n" + GOOD_ID,
        GOOD_ID.upper(),
        "../" + GOOD_ID[3:],
        "g" + GOOD_ID[1:],
        GOOD_ID[:-1] + "\0",
        GOOD_ID[:-1] + "/",
        GOOD_ID[:-1] + "٣",
        "０" * 32,
        "." * 32,
    ],
)
def test_any_other_id_is_not_found(text: str) -> None:
    with pytest.raises(UploadNotFound):
        parse_upload_id(text)


@given(st.text(max_size=40))
def test_every_accepted_id_is_32_hexadecimal_digits(text: str) -> None:
    try:
        upload_id = parse_upload_id(text)
    except UploadNotFound:
        return
    assert len(upload_id) == 32
    assert set(upload_id) <= set("0123456789abcdef")


def test_offset_is_the_end_of_the_prefix_and_missing_the_rest() -> None:
    upload = upload_of(100, (0, 10), (50, 60))
    assert upload.offset == 10
    assert list(upload.missing) == [ByteRange(10, 50), ByteRange(60, 100)]


def test_with_an_unknown_length_only_the_gaps_are_missing() -> None:
    upload = upload_of(None, (0, 10), (50, 60))
    assert list(upload.missing) == [ByteRange(10, 50)]
    assert not upload.is_covered
    with pytest.raises(UploadConflict):
        _ = upload.known_length


def test_received_bytes_count_and_are_activity() -> None:
    before = upload_of(100, (0, 10))
    after = before.with_received(ByteRange(5, 20), LATER)
    assert (after.received.total, after.active_at, after.created_at) == (20, LATER, NOW)
    assert after.state is UploadState.RECEIVING
    assert before == upload_of(100, (0, 10))


def test_the_last_missing_byte_starts_verification() -> None:
    nearly = upload_of(100, (0, 40), (41, 100))
    assert nearly.with_received(ByteRange(39, 40), LATER).state is UploadState.RECEIVING
    assert nearly.with_received(ByteRange(40, 41), LATER).state is UploadState.VERIFYING


def test_an_empty_file_waits_for_its_empty_chunk() -> None:
    empty = upload_of(0)
    assert empty.state is UploadState.RECEIVING
    assert empty.with_received(ByteRange(0, 0), LATER).state is UploadState.VERIFYING


def test_repeated_bytes_after_completion_change_no_state() -> None:
    complete = replace(upload_of(5, (0, 5)), state=UploadState.COMPLETE)
    again = complete.with_received(ByteRange(0, 5), LATER)
    assert (again.state, again.received) == (UploadState.COMPLETE, complete.received)


def test_a_late_length_may_complete_the_upload() -> None:
    upload = upload_of(None, (0, 10))
    assert upload.with_length(11, LATER).state is UploadState.RECEIVING
    told = upload.with_length(10, LATER)
    assert (told.length, told.state, told.active_at) == (10, UploadState.VERIFYING, LATER)


def test_the_same_length_may_be_repeated_but_not_changed() -> None:
    upload = upload_of(10, (0, 3))
    assert upload.with_length(10, LATER).length == 10
    with pytest.raises(UploadConflict):
        upload.with_length(11, LATER)


def test_a_length_below_the_received_bytes_is_refused() -> None:
    with pytest.raises(ChunkMismatch):
        upload_of(None, (0, 3), (8, 10)).with_length(9, LATER)


@pytest.mark.parametrize("state", UploadState)
def test_only_ended_uploads_are_refused_as_gone(state: UploadState) -> None:
    upload = replace(upload_of(1), state=state)
    if state in GONE:
        with pytest.raises(UploadGone, match=state.value):
            upload.require_present()
    else:
        assert upload.require_present() is upload


def test_an_upload_has_a_maximum_number_of_separate_ranges() -> None:
    scattered = RangeSet.of(ByteRange(n * 2, n * 2 + 1) for n in range(MAX_RANGES))
    upload = replace(upload_of(10 * MAX_RANGES), received=scattered)
    with pytest.raises(TooManyGaps):
        upload.with_received(ByteRange(9 * MAX_RANGES, 9 * MAX_RANGES + 1), NOW)
    joined = upload.with_received(ByteRange(1, 2), NOW)
    assert len(joined.received) == MAX_RANGES - 1


# ---- reservations of uploads through links -------------------------------------------------------

LENGTH = 50 << 30


def claimed(length: int | None = LENGTH) -> Upload:
    return replace(upload_of(length), reserved=0)


def receiving(upload: Upload, count: int, seconds: float) -> Upload:
    """The upload after so many more bytes in so many seconds; each step is later than the last."""
    span = ByteRange(upload.offset, upload.offset + count)
    return upload.with_received(span, upload.active_at + timedelta(seconds=seconds))


def test_an_upload_without_a_reservation_holds_its_length_and_any_byte_is_activity() -> None:
    upload = receiving(upload_of(100), 1, 60)
    assert (upload.held_bytes, upload.active_at) == (100, NOW + timedelta(minutes=1))


def test_a_reservation_holds_a_little_more_than_the_bytes_of_a_trickle() -> None:
    upload = claimed()
    for _ in range(100):
        upload = receiving(upload, 1, 1)
    assert 100 <= upload.held_bytes <= 100 + LEAST_AHEAD_BYTES


def test_a_trickle_is_no_progress() -> None:
    upload = claimed()
    for second in range(1, 100):
        upload = receiving(upload, 1, second)
    assert upload.active_at == NOW


def test_bytes_that_add_up_are_progress() -> None:
    upload = claimed()
    for second in range(1, 5):
        upload = receiving(upload, PROGRESS_BYTES // 4, second)
    assert (upload.active_at, upload.progress) == (NOW + timedelta(seconds=4), PROGRESS_BYTES)


def test_the_last_byte_is_progress() -> None:
    upload = receiving(receiving(claimed(2), 1, 5), 1, 10)
    assert (upload.active_at, upload.held_bytes) == (NOW + timedelta(seconds=10), 2)


def test_a_fast_upload_reserves_in_steps_that_double_up_to_a_limit() -> None:
    upload, steps, held = claimed(), 0, [0]
    for _ in range(1000):
        upload = receiving(upload, 20_000_000, 0.2)
        assert upload.offset <= upload.held_bytes <= LENGTH
        steps += upload.held_bytes != held[-1]
        held.append(upload.held_bytes)
    assert steps < 40
    assert max(b - a for a, b in pairwise(held)) <= MOST_AHEAD_BYTES + 20_000_000


def test_a_reservation_never_exceeds_the_length() -> None:
    upload = receiving(claimed(10), 3, 1)
    assert upload.held_bytes == 10
    unknown = receiving(claimed(None), 3, 1)
    assert unknown.held_bytes == 3 + LEAST_AHEAD_BYTES
    assert unknown.with_length(5, LATER).held_bytes == 5


def test_a_stalled_upload_holds_its_bytes_alone_until_there_is_progress() -> None:
    stalled = receiving(claimed(), 10, 1).stalled()
    assert (stalled.held_bytes, stalled.is_stalled) == (10, True)
    trickling = receiving(stalled, 1, 1)
    assert (trickling.held_bytes, trickling.is_stalled) == (11, True)
    awake = receiving(trickling, PROGRESS_BYTES, 1)
    assert not awake.is_stalled
    assert awake.held_bytes > awake.offset


def test_a_stalled_upload_is_no_longer_once_it_is_complete() -> None:
    stalled = receiving(claimed(11), 10, 1).stalled()
    assert receiving(stalled, 1, 1).is_stalled is False
    unknown = receiving(claimed(None), 2 * PROGRESS_BYTES, 1).stalled()
    assert unknown.with_length(2 * PROGRESS_BYTES, LATER).is_stalled is False


def test_the_crc32c_of_a_file_is_that_of_its_chunks_in_any_order() -> None:
    upload = upload_of(6)
    for start in (2, 0, 4):
        span = ByteRange(start, start + 2)
        upload = upload.with_received(span, NOW, crc32c=crc32c(b"abcdef"[start : start + 2]))
    assert upload.crc32c == in_base64(crc32c(b"abcdef"))


def test_the_same_chunk_again_changes_no_sum() -> None:
    upload = upload_of(6).with_received(ByteRange(0, 3), NOW, crc32c=crc32c(b"abc"))
    again = upload.with_received(ByteRange(0, 3), LATER, crc32c=crc32c(b"xyz"))
    done = again.with_received(ByteRange(3, 6), LATER, crc32c=crc32c(b"def"))
    assert done.crc32c == in_base64(crc32c(b"abcdef"))


@pytest.mark.parametrize("has_sum", [True, False])
def test_a_file_of_which_some_bytes_have_no_sum_keeps_none(has_sum: bool) -> None:
    upload = upload_of(1000)
    for start in range(0, 998, 2):
        upload = upload.with_received(ByteRange(start, start + 1), NOW, crc32c=1)
        # Such a chunk has bytes in it that are there already, or no sum.
        span = ByteRange(start, start + 2) if has_sum else ByteRange(start + 1, start + 2)
        upload = upload.with_received(span, NOW, crc32c=1 if has_sum else None)
        assert upload.sums == RangeSums()
    assert upload.with_received(ByteRange(998, 1000), NOW, crc32c=1).crc32c is None
