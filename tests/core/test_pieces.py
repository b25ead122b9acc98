"""The pieces of a file, which of their bytes count, and the parts that are made of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.pieces import (
    MIB,
    PIECE_BYTES,
    SMALLEST_PART_BYTES,
    Piece,
    Taken,
    is_whole,
    overlay,
    part_bytes,
    piece_bytes,
    planned_parts,
    span_of,
    spans_of_pieces,
)
from app.core.ranges import ByteRange, RangeSet

MOST_PARTS = 10_000
MOST_PART_BYTES = 5 << 30
LARGEST_FILE = 5 << 40
"""Limits of S3."""

lengths = st.one_of(st.integers(1, 400 * MIB), st.integers(1, LARGEST_FILE), st.just(LARGEST_FILE))


def piece(number: int, span: ByteRange) -> Piece:
    return Piece(number, span, f"pieces/{number}", "")


def pieces_of(spans: Iterable[ByteRange]) -> list[Piece]:
    return [piece(number, span) for number, span in enumerate(spans, 1)]


def whole(pieces: Iterable[Piece]) -> list[Taken]:
    return [(each, each.span) for each in pieces]


def parts_of(taken: Iterable[Taken], length: int, start: int = 0) -> list[list[Taken]]:
    return list(planned_parts(taken, start, least=part_bytes(length), length=length))


def assert_fit_for_s3(parts: Sequence[Sequence[Taken]], length: int) -> None:
    """The parts have all bytes of a file, once and in order, within the limits of S3."""
    spans = [span_of(part) for part in parts]
    assert (spans[0].start, spans[-1].end) == (0, length)
    assert all(one.end == other.start for one, other in pairwise(spans))
    assert all(span.length >= SMALLEST_PART_BYTES for span in spans[:-1])
    assert all(span.length <= MOST_PART_BYTES for span in spans)
    assert len(parts) < MOST_PARTS
    for part in parts:
        assert all(one[1].end == other[1].start for one, other in pairwise(part))


# ---- pieces --------------------------------------------------------------------------------------


@given(length=lengths, is_told=st.booleans())
def test_a_file_that_comes_in_one_request_fits_the_limits_of_s3(
    length: int, *, is_told: bool
) -> None:
    spans = list(spans_of_pieces(ByteRange(0, length), length if is_told else None))
    assert_fit_for_s3(parts_of(whole(pieces_of(spans)), length), length)


@given(
    start=st.integers(0, 1 << 36),
    length=st.integers(1, 400 * MIB),
    file=st.one_of(st.none(), st.integers(1 << 37, 1 << 40)),
)
def test_a_request_is_cut_into_pieces_of_much_the_same_length(
    start: int, length: int, file: int | None
) -> None:
    spans = list(spans_of_pieces(ByteRange(start, start + length), file))
    assert RangeSet.of(spans) == RangeSet.of([ByteRange(start, start + length)])
    assert sum(span.length for span in spans) == length
    for span in spans:
        assert span.length <= piece_bytes(file, span.start)
        assert len(spans) == 1 or span.length >= piece_bytes(file, span.start) // 2


def test_the_page_sends_chunks_of_one_piece_each() -> None:
    assert list(spans_of_pieces(ByteRange(0, PIECE_BYTES), 1 << 30)) == [ByteRange(0, PIECE_BYTES)]


# ---- which bytes count ---------------------------------------------------------------------------

SHORT = 60


@pytest.mark.parametrize("seed", range(200))
def test_each_byte_comes_from_the_oldest_piece_that_has_it(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [
        piece(number, ByteRange(*sorted(rng.sample(range(SHORT + 1), 2))))
        for number in range(rng.randrange(12))
    ]
    rng.shuffle(pieces)
    start, end = sorted(rng.sample(range(SHORT + 1), 2))
    oldest = dict[int, Piece]()
    for each in sorted(pieces, key=lambda each: -each.id):
        oldest |= dict.fromkeys(range(each.span.start, each.span.end), each)
    wanted = [(position, oldest[position]) for position in range(start, end) if position in oldest]
    taken = overlay(pieces, ByteRange(start, end))
    found = [(position, each) for each, span in taken for position in range(span.start, span.end)]
    assert found == wanted


# ---- parts ---------------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, list[ByteRange]]:
    """A file, and the ranges of requests that bring it: short and long, partly twice."""
    sizes = st.one_of(st.integers(1, 3 * MIB), st.integers(1, 90 * MIB))
    spans, end = list[ByteRange](), 0
    for size in draw(st.lists(sizes, min_size=1, max_size=40)):
        start = end - draw(st.one_of(st.just(0), st.integers(0, min(end, 8 * MIB))))
        end = max(end, start + size)
        spans.append(ByteRange(start, start + size))
    return end, draw(st.permutations(spans))


@given(requests())
def test_parts_have_all_bytes_in_order_however_they_have_come(
    file: tuple[int, list[ByteRange]],
) -> None:
    length, spans = file
    cut = [each for span in spans for each in spans_of_pieces(span, length)]
    taken = overlay(pieces_of(cut), ByteRange(0, length))
    parts = parts_of(taken, length)
    assert [each for part in parts for each in part] == taken
    assert_fit_for_s3(parts, length)


@given(requests(), st.data())
def test_parts_made_early_are_followed_by_the_others(
    file: tuple[int, list[ByteRange]], data: st.DataObject
) -> None:
    length, spans = file
    pieces = pieces_of(each for span in spans for each in spans_of_pieces(span, length))
    early, parts = pieces[: data.draw(st.integers(0, len(pieces)))], list[list[Taken]]()
    for found in (early, pieces):
        start = span_of(parts[-1]).end if parts else 0
        parts += parts_of(overlay(found, ByteRange(start, length)), length, start)
    assert_fit_for_s3(parts, length)


def test_the_bytes_before_a_gap_become_parts_as_far_as_they_are_long_enough() -> None:
    first, short, after = ByteRange(0, 6 * MIB), ByteRange(6 * MIB, 7 * MIB), 8 * MIB
    found = pieces_of([first, short, ByteRange(after, after + 30 * MIB)])
    parts = parts_of(whole(found), 40 * MIB)
    assert [span_of(part) for part in parts] == [first]
    assert parts_of(whole(found[2:]), 40 * MIB) == [], "the first byte has not come"


def test_long_pieces_are_parts_of_their_own_and_short_ones_are_collected() -> None:
    long, short = 20 * MIB, 2 * MIB
    ends = [long, *range(long + short, long + 21 * short, short)]
    spans = [ByteRange(start, end) for start, end in pairwise([0, *ends, ends[-1] + long])]
    parts = parts_of(whole(pieces_of(spans)), spans[-1].end)
    assert [len(part) for part in parts] == [1, 10, 10, 1]
    assert all(is_whole(part[0]) for part in parts)


def test_a_piece_next_to_one_that_is_too_short_is_collected_with_it() -> None:
    spans = [ByteRange(0, 2 * MIB), ByteRange(2 * MIB, 22 * MIB), ByteRange(22 * MIB, 42 * MIB)]
    parts = parts_of(whole(pieces_of(spans)), 42 * MIB)
    assert [len(part) for part in parts] == [2, 1]


def test_bytes_one_by_one_become_few_parts() -> None:
    """The shortest requests there are, with a tenth of a part each for a file of 5 TiB."""
    length = LARGEST_FILE
    step = part_bytes(length) // 10
    starts = range(0, length, step)
    spans = [ByteRange(start, min(start + step, length)) for start in starts]
    assert_fit_for_s3(parts_of(whole(pieces_of(spans)), length), length)
