"""The checksum of a file, joined from those of its chunks."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
from crc32c import crc32c

from app.core.crc32c import joined as joined_by_server
from sluice_client import Client
from sluice_client.chunk_sums import ChunkSums, joined
from sluice_client.hashing import FileHash, Kind
from sluice_client.spans import Span
from tests.client.conftest import MakeFile
from tests.live_server import Server

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


@pytest.mark.parametrize("seed", range(20))
def test_the_client_and_the_server_join_alike(seed: int) -> None:
    source = random.Random(seed)
    content = source.randbytes(source.randrange(1, 5000))
    cut = source.randrange(len(content) + 1)
    sums = crc32c(content[:cut]), crc32c(content[cut:])
    expected = crc32c(content)
    assert joined(*sums, len(content) - cut) == expected
    assert joined_by_server(*sums, len(content) - cut) == expected
    # Of lengths that no test could read.
    length = source.randrange(2**50)
    assert joined(*sums, length) == joined_by_server(*sums, length)


def test_a_sha256_has_no_crc32c() -> None:
    assert FileHash(Kind.SHA256).crc32c is None
    assert FileHash(Kind.CRC32C).crc32c == 0


def test_without_crc32c_no_sums_are_kept(
    server: Server,
    make_client: Callable[..., Client],
    make_file: MakeFile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added: list[Span] = []
    monkeypatch.setattr(ChunkSums, "add", lambda _, span, _crc32c: added.append(span))
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert make_client(server.url).upload(make_file()).is_verified
    assert not added
