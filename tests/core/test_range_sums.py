"""`RangeSums` against the checksum of all bytes."""

from __future__ import annotations

from itertools import pairwise

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from app.core.crc32c import RangeSums
from app.core.ranges import ByteRange


@given(st.data(), st.binary(max_size=200))
def test_sums_in_any_order_make_that_of_the_file(data: st.DataObject, content: bytes) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=8))
    edges = sorted({0, len(content), *cuts})
    spans = [ByteRange(start, end) for start, end in pairwise(edges)]
    sums = RangeSums()
    for count, span in enumerate(data.draw(st.permutations(spans))):
        assert count == 0 or sums.whole(len(content)) is None
        sums = sums.add(span, crc32c(content[span.start : span.end]))
        assert RangeSums.from_bytes(sums.to_bytes()) == sums
    assert sums.whole(len(content)) == crc32c(content)
    assert sums.whole(len(content) + 1) is None


def test_parts_that_touch_are_one() -> None:
    sums = RangeSums().add(ByteRange(4, 6), 1).add(ByteRange(0, 2), 2)
    assert len(sums.to_bytes()) == 48
    assert len(sums.add(ByteRange(2, 4), 3).to_bytes()) == 24
