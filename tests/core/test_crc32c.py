"""The CRC32C of parts in a row is that of all their bytes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from app.core.crc32c import joined_crc32c
from tests.dropzone_client import crc32c_of


@pytest.mark.parametrize("cuts", [[], [0], [1], [500], [1, 2, 3], [300, 600, 600, 999]])
def test_however_the_bytes_are_cut(cuts: list[int]) -> None:
    content = random.Random(1).randbytes(1000)
    parts = [content[start:end] for start, end in pairwise([0, *cuts, len(content)])]
    assert joined_crc32c((len(part), crc32c_of(part)) for part in parts) == crc32c_of(content)


def test_no_bytes_at_all() -> None:
    assert joined_crc32c([]) == crc32c_of(b"") == "AAAAAA=="
