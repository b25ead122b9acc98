"""Content-Digest: correct digests are accepted, wrong ones reported, in any combination."""

from __future__ import annotations

import base64
import string
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.errors import DigestMismatch, InvalidRequest
from app.http.digests import ALGORITHMS, digest_source, parse_content_digest
from tests.cost import HOSTILE, assert_cost_is_linear
from tests.digests import digest, digest_field
from tests.storage.sources import PiecesSource

BASE64 = f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/"

names = st.sampled_from(sorted(ALGORITHMS))
several = st.lists(names, min_size=1, unique=True)
unknown = st.lists(
    st.from_regex(
        r"[a-z*][a-z0-9_.*-]{0,8}=(:[A-Za-z0-9+/]{0,8}={0,2}:|\?1|[0-9]{1,3})", fullmatch=True
    ),
    max_size=3,
).map(lambda items: [item for item in items if item.partition("=")[0] not in ALGORITHMS])
padding = st.text(" ", max_size=2)
blocks = st.lists(st.integers(1, 7) | st.none(), max_size=5).map(lambda ticks: (*ticks, 3))


def is_accepted(data: bytes, cuts: tuple[int | None, ...], header: str) -> bool:
    source = digest_source(PiecesSource(data, cuts), header)
    buffer, received = memoryview(bytearray(5)), b""
    while (count := source.readinto(buffer)) != 0:
        received += buffer[: count or 0]
    assert received == data
    try:
        source.finish()
    except DigestMismatch:
        return False
    return True


@given(st.binary(max_size=40), several, unknown, padding, blocks, st.randoms())
def test_correct_digests_are_accepted_in_any_order_and_among_unknown_ones(
    data: bytes,
    chosen: list[str],
    others: list[str],
    space: str,
    cuts: tuple[int | None, ...],
    random: Random,
) -> None:
    members = [*(digest_field(name, data) for name in chosen), *others]
    random.shuffle(members)
    header = f"{space},{space}".join(members)
    parsed = parse_content_digest(header)
    first = next(name for name in ALGORITHMS if name in chosen)
    assert parsed == (ALGORITHMS[first], digest(first, data))
    assert is_accepted(data, cuts, header)


@given(st.binary(max_size=40), st.binary(max_size=40), names, blocks)
def test_a_digest_matches_only_its_own_bytes(
    data: bytes, other: bytes, name: str, cuts: tuple[int | None, ...]
) -> None:
    assert is_accepted(data, cuts, digest_field(name, other)) is (data == other)


def spellings(name: str, data: bytes) -> set[str]:
    """All headers that mean the same digest: pad bits of any value, padding that may be missing."""
    stem = base64.b64encode(digest(name, data)).decode().rstrip("=")
    bits = len(stem) * 6 - len(digest(name, data)) * 8
    last = BASE64.index(stem[-1])
    lasts = BASE64[last : last + 2**bits]
    paddings = range(-len(stem) % 4 + 1)
    return {f"{name}=:{stem[:-1]}{sextet}{'=' * count}:" for sextet in lasts for count in paddings}


def damaged(header: str, position: int, replacement: str) -> str:
    position %= len(header)
    return header[:position] + replacement + header[position + 1 :]


@given(st.binary(max_size=20), names, st.integers(0), st.text(max_size=1) | st.sampled_from(BASE64))
@example(data=b"", name="md5", position=26, replacement="h")
@example(data=b"", name="md5", position=27, replacement="")
def test_a_damaged_header_means_the_same_digest_only_if_it_is_another_spelling_of_it(
    data: bytes, name: str, position: int, replacement: str
) -> None:
    header = damaged(digest_field(name, data), position, replacement)
    try:
        parsed = parse_content_digest(header)
    except InvalidRequest:
        parsed = None
    is_same = parsed == (ALGORITHMS[name], digest(name, data))
    assert is_same is (header in spellings(name, data))


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("head", ["", "sha-256=:", "md5=:AAAA:, "])
def test_the_cost_of_the_header_grows_with_its_length(head: str, unit: str) -> None:
    assert_cost_is_linear(parse_content_digest, head, unit, "z")
