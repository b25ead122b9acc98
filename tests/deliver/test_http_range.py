"""Range headers (RFC 9110, section 14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.ranges import ByteRange, RangeSet
from app.deliver.conditional import (
    MAX_RANGES,
    RangeNotSatisfiable,
    content_range,
    requested_spans,
)

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
    assert requested_spans(header, LENGTH) == [ByteRange(start, end)]


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
        "bytes=3333333333333333333-2222222222222222222",
        "bytes=0030-7",
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
        "bytes=,",
        "bytes= , ,",
        "bytes=0-1,5-2",
        "bytes=0-1,x",
        "bytes=0-1;5-6",
        "items=0-1,5-6",
    ],
)
def test_a_malformed_range_or_another_unit_is_ignored(header: str | None) -> None:
    assert requested_spans(header, LENGTH) == []


@pytest.mark.parametrize(
    ("header", "spans"),
    [
        ("bytes=0-9,20-29", [(0, 10), (20, 30)]),
        ("bytes=20-29,0-9", [(20, 30), (0, 10)]),
        ("bytes=0-0,-1", [(0, 1), (999, 1000)]),
        ("bytes=0-1 ,\t5-6", [(0, 2), (5, 7)]),
        ("bytes=,0-1,,5-6,", [(0, 2), (5, 7)]),
        ("bytes=0-10,5-20,900-", [(0, 21), (900, 1000)]),
        ("bytes=900-,5-20,0-4", [(900, 1000), (0, 21)]),
        ("bytes=0-9,10-19", [(0, 20)]),
        ("bytes=0-9,11-19", [(0, 10), (11, 20)]),
        ("bytes=0-9,0-9,0-9", [(0, 10)]),
        ("bytes=5-6,0-", [(0, 1000)]),
        ("bytes=0-9,1000-2000", [(0, 10)]),
        ("bytes=1000-,0-9,-0,20-29", [(0, 10), (20, 30)]),
    ],
)
def test_several_ranges_keep_their_order_and_send_no_byte_twice(
    header: str, spans: list[tuple[int, int]]
) -> None:
    assert requested_spans(header, LENGTH) == [ByteRange(start, end) for start, end in spans]


def test_a_header_with_too_many_ranges_is_ignored() -> None:
    ranges = [f"{start}-{start}" for start in range(0, 2 * MAX_RANGES + 2, 2)]
    most = requested_spans("bytes=" + ",".join(ranges[:MAX_RANGES]), LENGTH)
    assert len(most) == MAX_RANGES
    assert requested_spans("bytes=" + ",".join(ranges), LENGTH) == []


@pytest.mark.parametrize(
    ("header", "length"),
    [
        ("bytes=1000-", LENGTH),
        ("bytes=1000-1001", LENGTH),
        ("bytes=99999999999999999999-", LENGTH),
        ("bytes=" + "9" * 5000 + "-", LENGTH),
        ("bytes=0-", 0),
        ("bytes=0-0", 0),
        ("bytes=-1", 0),
        ("bytes=-0", LENGTH),
        ("bytes=-0", 0),
        ("bytes=1000-,2000-3000,-0", LENGTH),
    ],
)
def test_ranges_without_a_byte_of_the_file_cannot_be_satisfied(header: str, length: int) -> None:
    with pytest.raises(RangeNotSatisfiable):
        requested_spans(header, length)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 40))
def test_the_inclusive_form_selects_what_python_slices(first: int, last: int, length: int) -> None:
    content = bytes(range(length))
    expected = content[first : last + 1]
    try:
        spans = requested_spans(f"bytes={first}-{last}", length)
    except RangeNotSatisfiable:
        assert first >= length
        return
    if not spans:
        assert last < first
    else:
        assert [content[span.start : span.end] for span in spans] == [expected]


positions = st.integers(0, 50)
pairs = st.tuples(positions, positions).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(pairs, min_size=1, max_size=MAX_RANGES), st.integers(1, 40))
def test_several_ranges_select_their_union(asked: list[tuple[int, int]], length: int) -> None:
    header = "bytes=" + ",".join(f"{first}-{last}" for first, last in asked)
    expected = {byte for first, last in asked for byte in range(first, min(last + 1, length))}
    try:
        spans = requested_spans(header, length)
    except RangeNotSatisfiable:
        spans = []
    selected = [byte for span in spans for byte in range(span.start, span.end)]
    assert len(selected) == len(set(selected))
    assert set(selected) == expected
    assert list(RangeSet.of(spans)) == sorted(spans)


@given(st.lists(pairs, min_size=1, max_size=MAX_RANGES))
def test_merged_ranges_keep_the_place_of_the_first(asked: list[tuple[int, int]]) -> None:
    header = "bytes=" + ",".join(f"{first}-{last}" for first, last in asked)
    spans = requested_spans(header, LENGTH)
    places = [
        min(place for place, (first, _) in enumerate(asked) if span.start <= first < span.end)
        for span in spans
    ]
    assert places == sorted(places)


@given(st.text(max_size=30), st.integers(0, 100))
def test_any_header_value_selects_bytes_of_the_file_or_none(text: str, length: int) -> None:
    try:
        spans = requested_spans(f"bytes={text}", length)
    except RangeNotSatisfiable:
        return
    assert all(0 <= span.start < span.end <= length for span in spans)


def test_content_range_is_inclusive() -> None:
    assert content_range(ByteRange(0, 1), 1000) == "bytes 0-0/1000"
    assert content_range(ByteRange(500, 1000), 1000) == "bytes 500-999/1000"
