"""What an `Upload` makes of bytes, lengths and ids."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import (
    ChunkMismatch,
    TooManyGaps,
    UploadConflict,
    UploadGone,
    UploadNotFound,
)
from app.domain.lifecycle import GONE, UploadState
from app.domain.ranges import ByteRange, RangeSet
from app.domain.upload import MAX_RANGES, Upload, UploadId, parse_upload_id

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
