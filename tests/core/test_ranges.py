"""`RangeSet` against a plain set of byte numbers."""

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.core.ranges import MAX_BYTES, ByteRange, RangeSet

LAST = 40
"""Few byte numbers, so that random ranges often overlap and often touch."""

numbers = st.integers(0, LAST)
spans = st.tuples(numbers, numbers).map(lambda pair: ByteRange(min(pair), max(pair)))


def members(ranges: Iterable[ByteRange]) -> set[int]:
    return {number for item in ranges for number in range(item.start, item.end)}


def bytes_of(span: ByteRange) -> set[int]:
    return set(range(span.start, span.end))


def is_normal(ranges: Iterable[ByteRange]) -> bool:
    """Sorted, none empty, none overlapping or touching the next."""
    items = list(ranges)
    return all(item.length > 0 for item in items) and all(
        left.end < right.start for left, right in pairwise(items)
    )


class GrowingSet(RuleBasedStateMachine):
    """Adds spans to a `RangeSet` and to a set of ints, and compares whatever can be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = RangeSet()
        self.model: set[int] = set()

    @rule(span=spans)
    def add(self, span: ByteRange) -> None:
        self.ranges = self.ranges.add(span)
        self.model |= bytes_of(span)

    @rule(span=spans)
    def compare_one_span(self, span: ByteRange) -> None:
        gaps = list(self.ranges.gaps(span))
        assert members(gaps) == bytes_of(span) - self.model
        assert is_normal(gaps)
        assert self.ranges.covers(span) == (bytes_of(span) <= self.model)

    @rule(length=numbers)
    def compare_missing(self, length: int) -> None:
        missing = self.ranges.missing(length)
        assert members(missing) == set(range(length)) - self.model
        assert is_normal(missing)

    @invariant()
    def is_the_same_set_in_normal_form(self) -> None:
        assert members(self.ranges) == self.model
        assert is_normal(self.ranges)

    @invariant()
    def sums_agree(self) -> None:
        assert self.ranges.total == len(self.model)
        assert self.ranges.end == max(self.model, default=-1) + 1
        first_absent = next(number for number in range(LAST + 1) if number not in self.model)
        assert self.ranges.prefix_end == first_absent


TestGrowingSet = GrowingSet.TestCase


@given(st.lists(spans))
def test_a_set_survives_encoding(items: list[ByteRange]) -> None:
    before = RangeSet.of(items)
    written = before.to_bytes()
    assert len(written) == 16 * len(before)
    assert RangeSet.from_bytes(written) == before


def test_the_bytes_are_the_same_on_every_machine() -> None:
    written = RangeSet.of([ByteRange(1, 2), ByteRange(0x0304, 0x0506)]).to_bytes()
    assert written.hex(" ", 8) == (
        "0100000000000000 0200000000000000 0403000000000000 0605000000000000"
    )


@pytest.mark.parametrize("lost", [1, 8, 15])
def test_truncated_bytes_are_damaged(lost: int) -> None:
    written = RangeSet.of([ByteRange(0, 5), ByteRange(7, 9)]).to_bytes()
    with pytest.raises(ValueError, match="damaged"):
        RangeSet.from_bytes(written[:-lost])


@given(st.lists(spans), st.randoms(use_true_random=False))
def test_the_order_of_adding_makes_no_difference(items: list[ByteRange], chance: Random) -> None:
    shuffled = list(items)
    chance.shuffle(shuffled)
    one_by_one = RangeSet()
    for item in shuffled:
        one_by_one = one_by_one.add(item)
    assert one_by_one == RangeSet.of(items)


@given(st.lists(spans), spans)
def test_adding_again_changes_nothing_and_adding_never_changes_the_original(
    items: list[ByteRange], span: ByteRange
) -> None:
    before = RangeSet.of(items)
    copy = RangeSet.of(before)
    after = before.add(span)
    assert after.add(span) == after
    assert before == copy


@given(st.lists(spans), numbers)
def test_filling_every_missing_range_covers_the_file(items: list[ByteRange], length: int) -> None:
    ranges = RangeSet.of(items)
    for gap in ranges.missing(length):
        assert not ranges.covers(gap)
        ranges = ranges.add(gap)
    assert ranges.covers(ByteRange(0, length))
    assert list(ranges.missing(length)) == []


def test_neighbours_become_one_range() -> None:
    ranges = RangeSet.of([ByteRange(0, 5), ByteRange(10, 15)]).add(ByteRange(5, 10))
    assert list(ranges) == [ByteRange(0, 15)]


def test_one_byte_apart_stays_apart() -> None:
    ranges = RangeSet().add(ByteRange(0, 5)).add(ByteRange(6, 10))
    assert list(ranges) == [ByteRange(0, 5), ByteRange(6, 10)]
    assert list(ranges.missing(12)) == [ByteRange(5, 6), ByteRange(10, 12)]


def test_a_range_may_cover_many() -> None:
    ranges = RangeSet.of(ByteRange(n * 10, n * 10 + 5) for n in range(100))
    assert len(ranges) == 100
    assert list(ranges.add(ByteRange(3, 993))) == [ByteRange(0, 995)]


def test_empty_spans_are_covered_and_add_nothing() -> None:
    ranges = RangeSet.of([ByteRange(0, 5), ByteRange(7, 7)])
    assert ranges.covers(ByteRange(6, 6))
    assert ranges.add(ByteRange(6, 6)) == ranges
    assert RangeSet().covers(ByteRange(0, 0))


def test_the_empty_set_has_nothing() -> None:
    empty = RangeSet()
    assert (empty.total, empty.prefix_end, empty.end, len(empty)) == (0, 0, 0, 0)
    assert list(empty.missing(0)) == []
    assert list(empty.missing(9)) == [ByteRange(0, 9)]


def test_the_prefix_needs_byte_zero() -> None:
    assert RangeSet.of([ByteRange(1, 9)]).prefix_end == 0


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (5, 4), (-3, -2)])
def test_an_invalid_range_cannot_be_constructed(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(start, end)


def test_a_set_holds_no_more_than_its_count() -> None:
    assert RangeSet().missing(MAX_BYTES).end == MAX_BYTES
    with pytest.raises(OverflowError):
        RangeSet().missing(MAX_BYTES + 1)


def test_the_largest_possible_files_fit() -> None:
    huge = (1 << 63) - 6
    ranges = RangeSet().add(ByteRange(huge, huge + 5))
    assert ranges.missing(huge).total == huge
    assert ranges.end == huge + 5
