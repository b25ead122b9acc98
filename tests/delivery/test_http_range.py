"""Range headers as RFC 9110, section 14, reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.http_range import RangeNotSatisfiable, content_range, requested_span
from app.domain.ranges import ByteRange

LENGTH = 1000


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-499", 0, 500),
        ("bytes=500-999", 500, 1000),
        ("bytes=999-999", 999, 1000),
        ("bytes=0-", 0, 1000),
        ("bytes=999-", 999, 1000),
        ("bytes=-1", 999, 1000),
        ("bytes=-500", 500, 1000),
        ("bytes=-1000", 0, 1000),
        ("bytes=-1001", 0, 1000),
        ("bytes=-99999999999999999999", 0, 1000),
        ("bytes=0-1000", 0, 1000),
        ("bytes=0-99999999999999999999", 0, 1000),
        ("bytes=500-18446744073709551616", 500, 1000),
        ("bytes=007-008", 7, 9),
        ("BYTES=0-4", 0, 5),
        ("bytes= 0-4", 0, 5),
    ],
)
def test_one_range_selects_its_bytes(header: str, start: int, end: int) -> None:
    assert requested_span(header, LENGTH) == ByteRange(start, end)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=0",
        "bytes=5-2",
        "bytes=--5",
        "bytes=-5-",
        "bytes=1-2-3",
        "bytes=0x10-0x20",
        "bytes=+1-+2",
        "bytes=1.0-2.0",
        "bytes=٣-٤",
        "bytes 0-4",
        "0-4",
        "items=0-4",
        "seconds=1-2",
        "bytes=" + "9" * 5000 + "-",
    ],
)
def test_what_is_malformed_or_in_another_unit_is_ignored(header: str | None) -> None:
    assert requested_span(header, LENGTH) is None


@pytest.mark.parametrize("header", ["bytes=0-1,5-6", "bytes=0-0,-1", "bytes=0-10,5-20,900-"])
def test_several_ranges_are_answered_with_the_whole_file(header: str) -> None:
    assert requested_span(header, LENGTH) is None


@pytest.mark.parametrize(
    ("header", "length"),
    [
        ("bytes=1000-", LENGTH),
        ("bytes=1000-1001", LENGTH),
        ("bytes=99999999999999999999-", LENGTH),
        ("bytes=0-", 0),
        ("bytes=0-0", 0),
        ("bytes=-1", 0),
    ],
)
def test_a_range_without_a_byte_of_the_file_cannot_be_satisfied(header: str, length: int) -> None:
    with pytest.raises(RangeNotSatisfiable):
        requested_span(header, length)


@pytest.mark.parametrize("length", [0, LENGTH])
def test_a_suffix_of_no_bytes_is_ignored(length: int) -> None:
    """RFC 9110, 14.2 would rather see a 416 here, and lets a server ignore any Range."""
    assert requested_span("bytes=-0", length) is None


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 40))
def test_the_inclusive_form_selects_what_python_slices(first: int, last: int, length: int) -> None:
    content = bytes(range(length))
    expected = content[first : last + 1]
    try:
        span = requested_span(f"bytes={first}-{last}", length)
    except RangeNotSatisfiable:
        assert first >= length
        return
    if span is None:
        assert last < first
    else:
        assert content[span.start : span.end] == expected


@given(st.text(max_size=30), st.integers(0, 100))
def test_whatever_stands_there_selects_bytes_of_the_file_or_none(text: str, length: int) -> None:
    try:
        span = requested_span(f"bytes={text}", length)
    except RangeNotSatisfiable:
        return
    assert span is None or 0 <= span.start < span.end <= length


def test_content_range_is_inclusive() -> None:
    assert content_range(ByteRange(0, 1), 1000) == "bytes 0-0/1000"
    assert content_range(ByteRange(500, 1000), 1000) == "bytes 500-999/1000"
