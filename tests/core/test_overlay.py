"""Which bytes of a cell are read from which piece."""

from __future__ import annotations

import random

import pytest

from app.core.cells import Piece, Stamp, overlay
from app.core.ranges import ByteRange

LENGTH = 60


def drawn_piece(number: int, rng: random.Random) -> Piece:
    start, end = sorted(rng.sample(range(LENGTH + 1), 2))
    return Piece(number, 0, ByteRange(start, end), f"pieces/{number}", Stamp("etag", ""))


@pytest.mark.parametrize("seed", range(200))
def test_each_byte_comes_from_the_newest_piece_that_has_it(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [drawn_piece(number, rng) for number in range(rng.randrange(12))]
    rng.shuffle(pieces)
    start, end = sorted(rng.sample(range(LENGTH + 1), 2))
    newest = dict[int, Piece]()
    for piece in sorted(pieces, key=lambda each: each.id):
        newest |= dict.fromkeys(range(piece.span.start, piece.span.end), piece)
    wanted = [(position, newest[position]) for position in range(start, end) if position in newest]
    taken = overlay(pieces, ByteRange(start, end))
    found = [(position, piece) for piece, span in taken for position in range(span.start, span.end)]
    assert found == wanted
