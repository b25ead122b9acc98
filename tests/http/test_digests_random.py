"""Content-Digest: correct digests are accepted, wrong ones reported, in any combination."""

from __future__ import annotations

import base64
import hashlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import DigestMismatch, InvalidRequest
from app.http.digests import ALGORITHMS, digest_source, parse_content_digest
from tests.cost import HOSTILE, assert_cost_is_linear
from tests.storage.sources import PiecesSource

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


def digest(name: str, data: bytes) -> bytes:
    return hashlib.new(ALGORITHMS[name], data).digest()


def member(name: str, data: bytes) -> str:
    return f"{name}=:{base64.b64encode(digest(name, data)).decode()}:"


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
    members = [*(member(name, data) for name in chosen), *others]
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
    assert is_accepted(data, cuts, member(name, other)) is (data == other)


@given(st.binary(max_size=20), names, st.integers(0), st.text(max_size=1))
def test_a_damaged_header_is_never_read_as_another_digest(
    data: bytes, name: str, position: int, replacement: str
) -> None:
    header = member(name, data)
    position %= len(header)
    damaged = header[:position] + replacement + header[position + 1 :]
    try:
        parsed = parse_content_digest(damaged)
    except InvalidRequest:
        return
    if parsed is not None and damaged != header:
        algorithm, expected = parsed
        assert len(expected) == hashlib.new(algorithm).digest_size
        # Base64 has spare bits at its end: a digest can be written in several ways.
        assert expected != digest(name, data) or position == header.rindex("=", 0, -1) - 1


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("head", ["", "sha-256=:", "md5=:AAAA:, "])
def test_the_cost_of_the_header_grows_with_its_length(head: str, unit: str) -> None:
    assert_cost_is_linear(parse_content_digest, head, unit, "z")
