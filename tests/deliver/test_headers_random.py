"""Range and conditional headers are read as the RFC says or ignored, whatever they hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.http import http_date

from app.core.ranges import ByteRange
from app.deliver.conditional import (
    MAX_RANGES,
    Outcome,
    RangeNotSatisfiable,
    Validators,
    content_range,
    evaluate,
    range_applies,
    requested_spans,
)
from tests.cost import HOSTILE, assert_cost_is_linear

FILE = Validators("a" * 32, datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))

CONDITIONS = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")

spaces = st.text(" \t", max_size=3)
tags = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters='"'))
entity_tags = st.tuples(st.sampled_from(["", "W/"]), tags | st.just(FILE.etag))
moments = st.integers(-(10**9), 10**9).map(lambda s: FILE.last_modified + timedelta(seconds=s))

fragments = [
    *'"*,;-+:=/ \t',
    *("W/", "a" * 32, "Mon", "Jan", "31", "2030", "00:00:00", "GMT", "+0000"),
    *("99999999999999999999", "+99999999999999999999", "-1", "٣", "\x00", "\xff"),
]
header_like = st.lists(st.sampled_from(fragments), max_size=12).map("".join) | st.text(max_size=40)


def listed(given_tags: list[tuple[str, str]], padding: str) -> str:
    return f",{padding}".join(f'{weak}"{tag}"{padding}' for weak, tag in given_tags)


# ---- Range ---------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(1, 40), spaces)
def test_an_open_range_selects_the_rest(first: int, length: int, padding: str) -> None:
    content = bytes(range(length))
    header = f"bytes={padding}{first}{padding}-{padding}"
    if first >= length:
        with pytest.raises(RangeNotSatisfiable):
            requested_spans(header, length)
    else:
        assert cut(content, requested_spans(header, length)) == content[first:]


@given(st.integers(1, 60), st.integers(1, 40), spaces)
def test_a_suffix_range_selects_the_end(count: int, length: int, padding: str) -> None:
    content = bytes(range(length))
    spans = requested_spans(f"bytes={padding}-{count}{padding}", length)
    assert cut(content, spans) == content[-count:]


@given(st.integers(0, 10**15), st.integers(1, 10**15), st.integers(0, 10**15))
def test_a_content_range_can_be_requested_again(start: int, size: int, more: int) -> None:
    span, length = ByteRange(start, start + size), start + size + more
    unit, _, told = content_range(span, length).partition(" ")
    positions, _, total = told.partition("/")
    assert int(total) == length
    assert requested_spans(f"{unit}={positions}", length) == [span]


@given(header_like, st.integers(0, 2000))
def test_no_byte_is_sent_twice_whatever_the_range(text: str, length: int) -> None:
    try:
        spans = requested_spans(f"bytes={text}", length)
    except RangeNotSatisfiable:
        return
    assert len(spans) <= MAX_RANGES
    assert sum(span.length for span in spans) <= length


def cut(content: bytes, spans: list[ByteRange]) -> bytes:
    (span,) = spans
    return content[span.start : span.end]


# ---- conditions ----------------------------------------------------------------------------------


@given(st.lists(entity_tags, min_size=1, max_size=6), spaces)
def test_if_none_match_finds_our_tag_anywhere_in_the_list(
    given_tags: list[tuple[str, str]], padding: str
) -> None:
    is_there = FILE.etag in [tag for _, tag in given_tags]
    expected = Outcome.NOT_MODIFIED if is_there else Outcome.SEND
    assert evaluate({"If-None-Match": listed(given_tags, padding)}, FILE) is expected


@given(st.lists(entity_tags, min_size=1, max_size=6), spaces)
def test_if_match_accepts_only_our_strong_tag(
    given_tags: list[tuple[str, str]], padding: str
) -> None:
    expected = Outcome.SEND if ("", FILE.etag) in given_tags else Outcome.PRECONDITION_FAILED
    assert evaluate({"If-Match": listed(given_tags, padding)}, FILE) is expected


@given(moments)
def test_dates_compare_by_the_second(moment: datetime) -> None:
    header, ours = http_date(moment), FILE.last_modified
    since = evaluate({"If-Modified-Since": header}, FILE)
    assert since is (Outcome.SEND if moment < ours else Outcome.NOT_MODIFIED)
    until = evaluate({"If-Unmodified-Since": header}, FILE)
    assert until is (Outcome.PRECONDITION_FAILED if moment < ours else Outcome.SEND)
    assert range_applies({"If-Range": header}, FILE) is (moment == ours)


@given(st.sampled_from(["", "W/"]), tags | st.just(FILE.etag))
def test_if_range_accepts_only_our_exact_tag(weak: str, tag: str) -> None:
    header = f'{weak}"{tag}"'
    assert range_applies({"If-Range": header}, FILE) is (header == f'"{FILE.etag}"')


@given(st.dictionaries(st.sampled_from(CONDITIONS), header_like))
def test_any_header_value_has_an_outcome(headers: dict[str, str]) -> None:
    assert isinstance(evaluate(headers, FILE), Outcome)


@given(header_like.filter(lambda text: FILE.etag not in text and text.strip() != "*"))
def test_a_validator_of_another_file_neither_saves_nor_resumes_a_download(text: str) -> None:
    assert evaluate({"If-None-Match": text}, FILE) is Outcome.SEND
    assert evaluate({"If-Match": text}, FILE) is Outcome.PRECONDITION_FAILED
    assert not range_applies({"If-Range": text}, FILE)


# ---- cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", [*CONDITIONS, "If-Range", "Range"])
def test_the_cost_of_a_header_grows_with_its_length(name: str, unit: str) -> None:
    def read(text: str) -> None:
        evaluate({name: text}, FILE)
        range_applies({name: text}, FILE)
        requested_spans(text if name == "Range" else None, 1000)

    assert_cost_is_linear(read, "bytes=" if name == "Range" else "a", unit, "z")
