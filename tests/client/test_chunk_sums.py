"""The checksum of a file, joined from those of its chunks."""

from __future__ import annotations

import os
import random
from itertools import pairwise

from crc32c import crc32c

from sluice_client.chunk_sums import ChunkSums
from sluice_client.spans import Span

DATA = os.urandom(100_000)
CUTS = [0, 1, 4096, 70_001, 100_000]


def sums_of(cuts: list[tuple[int, int]]) -> ChunkSums:
    sums = ChunkSums()
    for start, end in cuts:
        sums.add(Span(start, end), crc32c(DATA[start:end]))
    return sums


def test_chunks_in_any_order_give_the_checksum_of_the_file() -> None:
    cuts = list(pairwise(CUTS))
    random.shuffle(cuts)
    assert sums_of(cuts).whole(len(DATA)) == crc32c(DATA)


def test_chunks_that_were_sent_twice_count_once() -> None:
    assert sums_of([(0, 10), (10, 100_000), (0, 10)]).whole(len(DATA)) == crc32c(DATA)


def test_chunks_that_leave_a_gap_or_overlap_give_none() -> None:
    assert sums_of([(0, 10), (11, 100_000)]).whole(len(DATA)) is None
    assert sums_of([(0, 10), (9, 100_000)]).whole(len(DATA)) is None
    assert sums_of([(0, 99_999)]).whole(len(DATA)) is None
    assert sums_of([]).whole(len(DATA)) is None
