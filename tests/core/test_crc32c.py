"""The CRC32C of blocks in a row is that of all their bytes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from app.core.crc32c import from_base64, in_base64, joined
from tests.dropzone_client import crc32c_of


@pytest.mark.parametrize("cuts", [[], [0], [1], [500], [1, 2, 3], [300, 600, 600, 999]])
def test_however_the_bytes_are_cut(cuts: list[int]) -> None:
    content, value = random.Random(1).randbytes(1000), 0
    for start, end in pairwise([0, *cuts, len(content)]):
        value = joined(value, from_base64(crc32c_of(content[start:end])), end - start)
    assert in_base64(value) == crc32c_of(content)


def test_no_bytes_at_all() -> None:
    assert in_base64(0) == crc32c_of(b"") == "AAAAAA=="
