"""Byte ranges, and the chunks that cover them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sluice_client.spans import ChunkLadder, Span, Spans

LENGTH = 5000
spans = st.lists(
    st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(lambda pair: tuple(sorted(pair)))
)


def bytes_of(spans: Spans) -> set[int]:
    return {position for span in spans for position in range(*span)}


@given(spans, spans)
@example([(0, 2)], [(1, 1)])
def test_spans_are_sets_of_bytes(
    added: list[tuple[int, int]], removed: list[tuple[int, int]]
) -> None:
    ours, expected = Spans(added), {p for pair in added for p in range(*pair)}
    assert bytes_of(ours) == expected
    assert ours.total == len(expected)
    assert bytes_of(ours.missing(LENGTH)) == set(range(LENGTH)) - expected
    for start, end in removed:
        ours.remove(start, end)
        expected -= set(range(start, end))
    assert bytes_of(ours) == expected
    assert all(
        first.end < second.start for first, second in zip(ours, list(ours)[1:], strict=False)
    )


def test_the_prefix_ends_where_the_first_gap_begins() -> None:
    assert Spans([(0, 5), (7, 9)]).prefix_end == 5
    assert Spans([(1, 5)]).prefix_end == 0
    assert Spans().prefix_end == 0


@given(
    length=st.integers(1, LENGTH),
    sizes=st.lists(st.integers(1, 2000), min_size=1),
    base=st.integers(1, 1000),
)
def test_changing_chunk_sizes_cover_a_file_without_sending_a_byte_twice(
    length: int, sizes: list[int], base: int
) -> None:
    ladder = ChunkLadder.around(base, smallest=64, largest=4000)
    missing, sent, turn = Spans([(0, length)]), 0, 0
    while missing:
        gap = next(iter(missing))
        chunk = ladder.chunk(gap.start, gap, at_most=sizes[turn % len(sizes)], length=length)
        assert chunk.span.start == chunk.index * chunk.size
        assert chunk.span.end == min(chunk.span.start + chunk.size, length)
        missing.remove(*chunk.span)
        sent += chunk.span.length
        turn += 1
    assert sent == length


@given(st.integers(0, LENGTH - 1), st.integers(1, 500))
def test_a_gap_left_by_another_client_is_covered_with_little_overlap(start: int, size: int) -> None:
    ladder = ChunkLadder.around(1024, smallest=64, largest=4096)
    gap = Span(start, min(LENGTH, start + size))
    chunk = ladder.chunk(gap.start, gap, at_most=4096, length=LENGTH)
    assert chunk.span.start <= gap.start < chunk.span.end
    assert gap.start - chunk.span.start < ladder.unit
    assert chunk.span.end - gap.end < ladder.unit


def test_the_ladder_has_the_servers_chunk_size_and_halves_it() -> None:
    ladder = ChunkLadder.around(20 << 20, smallest=64 << 10, largest=90_000_000)
    assert ladder.at_most(20 << 20) == 20 << 20
    assert ladder.at_most((20 << 20) - 1) == 10 << 20
    assert ladder.largest == 80 << 20
    assert ladder.at_most(1) == ladder.unit == 80 << 10
    assert ChunkLadder.around(1, smallest=64, largest=128).unit == 1
