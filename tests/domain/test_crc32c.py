"""The CRC32C of parts in a row is that of all their bytes."""

from __future__ import annotations

import random
from base64 import b64encode
from itertools import pairwise

import pytest
from crc32c import crc32c

from app.domain.crc32c import joined_crc32c


def checksum(content: bytes) -> str:
    return b64encode(crc32c(content).to_bytes(4, "big")).decode()


@pytest.mark.parametrize("cuts", [[], [0], [1], [500], [1, 2, 3], [300, 600, 600, 999]])
def test_however_the_bytes_are_cut(cuts: list[int]) -> None:
    content = random.Random(1).randbytes(1000)
    parts = [content[start:end] for start, end in pairwise([0, *cuts, len(content)])]
    assert joined_crc32c((len(part), checksum(part)) for part in parts) == checksum(content)


def test_no_bytes_at_all() -> None:
    assert joined_crc32c([]) == checksum(b"") == "AAAAAA=="
