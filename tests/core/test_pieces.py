"""Which pieces of a cell are joined."""

import random
from collections.abc import Callable, Iterable

import pytest

from app.core.cells import Piece, Stamp, joinable, span_of
from app.core.ranges import ByteRange, RangeSet

MOST = 64


def piece(number: int, start: int, end: int) -> Piece:
    return Piece(number, 0, ByteRange(start, end), f"pieces/{number}", Stamp("etag", ""))


class JoinedCell:
    """A cell whose pieces are joined whenever there are `MOST` more; counts what is copied."""

    def __init__(self) -> None:
        self.pieces = list[Piece]()
        self.most = 0
        self.copied = 0
        self._number = 0

    def add(self, spans: Iterable[ByteRange]) -> None:
        for span in spans:
            self._number += 1
            self.pieces.append(piece(self._number, span.start, span.end))
            self.most = max(self.most, len(self.pieces))
            if len(self.pieces) % MOST == 0:
                self._join()

    def _join(self) -> None:
        for group in list(joinable(self.pieces)):
            span = span_of(group)
            assert RangeSet.of(each.span for each in group).covers(span)
            self.copied += span.length
            self.pieces = [each for each in self.pieces if each not in group]
            self.pieces.append(piece(max(each.id for each in group), span.start, span.end))


def bytes_one_by_one(count: int) -> list[ByteRange]:
    return [ByteRange(at, at + 1) for at in range(count)]


def backwards(count: int) -> list[ByteRange]:
    return bytes_one_by_one(count)[::-1]


def shuffled_in_blocks(count: int) -> list[ByteRange]:
    """In any order, with few gaps at a time."""
    spans, chance = bytes_one_by_one(count), random.Random(16)
    blocks = [spans[at : at + 32] for at in range(0, count, 32)]
    for block in blocks:
        chance.shuffle(block)
    return [span for block in blocks for span in block]


@pytest.mark.parametrize("order", [bytes_one_by_one, backwards, shuffled_in_blocks])
def test_a_cell_that_comes_byte_by_byte_has_few_pieces_and_copying_grows_with_its_length(
    order: Callable[[int], list[ByteRange]],
) -> None:
    copies = []
    for count in (4_000, 16_000):
        cell = JoinedCell()
        cell.add(order(count))
        assert cell.most <= 2 * MOST
        copies.append(cell.copied / count)
    assert copies[1] < 2 * copies[0], "each byte is copied hardly more often in a longer cell"


def test_what_has_gaps_stays_apart_until_they_are_filled() -> None:
    pieces = [piece(number, 2 * number, 2 * number + 1) for number in range(1, 100)]
    assert list(joinable(pieces)) == []
    [group] = joinable([*pieces, piece(200, 5, 6)])
    assert span_of(group) == ByteRange(4, 7)


def test_a_long_piece_is_not_copied_for_a_few_bytes() -> None:
    long, short = piece(1, 0, 1000), [piece(2, 1000, 1001), piece(3, 1001, 1002)]
    assert list(joinable([long, *short])) == [short]


def test_a_piece_that_has_all_bytes_is_left_alone_as_it_may_become_the_file() -> None:
    assert list(joinable([piece(1, 0, 5), piece(2, 0, 10)])) == []
    inside = [piece(1, 0, 5), piece(2, 5, 8)]
    assert list(joinable([*inside, piece(3, 0, 10)])) == [inside]


def test_pieces_may_lie_in_each_other_however_often() -> None:
    assert list(joinable(piece(number, 0, number) for number in range(1, 1001))) == []
