"""Random bodies survive any splitting, and hostile ones cost no more than their size."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import MalformedBody
from app.ingest.multipart import (
    NEED_DATA,
    End,
    Field,
    FileBegin,
    MultipartScanner,
)
from tests.ingest.form_bodies import (
    BOUNDARY,
    DELIMITER,
    READ,
    Part,
    blocks_of,
    body_of,
    field,
    file,
    files_of,
    scan,
    scan_taking,
)

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20)
fragments = st.sampled_from([b"\r", b"\n", b"\r\n", b"\r\n--", b"--", DELIMITER[:-1], BOUNDARY])
payloads = st.lists(fragments | st.binary(max_size=50), max_size=12).map(b"".join)
fields = st.builds(Field, names, st.text(st.characters(codec="utf-8"), max_size=50))
begins = st.builds(FileBegin, names, names, st.just("video/mp4"))


def quote(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', "%22")


def wire_of(part: Part) -> bytes:
    if isinstance(part, Field):
        return field(quote(part.name), part.value)
    return file(part[1], quote(part[0].name), quote(part[0].filename))


def is_plain(part: Part) -> bool:
    """Whether names and content stay the same: nothing in them looks like an escape."""
    if isinstance(part, Field):
        return "%22" not in part.name and DELIMITER not in part.value.encode()
    return "%22" not in part[0].name + part[0].filename


bodies = st.lists((fields | st.tuples(begins, payloads)).filter(is_plain), max_size=5)


def pieces_of(body: bytes, cuts: list[int]) -> list[bytes]:
    positions = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(positions)]


@settings(max_examples=150)
@given(bodies, st.lists(st.integers(min_value=0), max_size=20))
def test_any_body_survives_any_splitting(parts: list[Part], cuts: list[int]) -> None:
    parts = [p for p in parts if isinstance(p, Field) or DELIMITER not in p[1]]
    body = body_of(*map(wire_of, parts))
    assert scan(*pieces_of(body, cuts)) == parts


@settings(max_examples=150)
@given(bodies, st.integers(min_value=1, max_value=300))
def test_any_payload_survives_reading_by_length(parts: list[Part], block: int) -> None:
    lengths = [len(payload) for _, payload in files_of(parts)]
    assert scan_taking(body_of(*map(wire_of, parts)), lengths, block=block) == parts


@settings(max_examples=150)
@given(payloads, st.lists(st.integers(min_value=0), max_size=20))
def test_any_bytes_have_the_same_outcome_however_they_are_split(
    junk: bytes, cuts: list[int]
) -> None:
    body = body_of(field("a", "1"), file(junk)) + junk
    assert outcome(*pieces_of(body, cuts)) == outcome(body)


def outcome(*pieces: bytes) -> list[Part] | type[Exception]:
    try:
        return scan(*pieces)
    except MalformedBody as error:
        return type(error)


HOSTILE = {
    "CR": b"\r",
    "CRLF": b"\r\n",
    "delimiter starts": b"\r\n--",
    "cut delimiters": DELIMITER[:-1],
    "hyphens": b"-",
}


def seconds_to_scan(body: bytes, block: int) -> float:
    """The best of three, so that a busy machine does not matter."""
    blocks = blocks_of(body, block)
    return min(_seconds_once(blocks) for _ in range(3))


def _seconds_once(blocks: list[bytes]) -> float:
    scanner = MultipartScanner(BOUNDARY)
    began = time.process_time()
    for block in blocks:
        scanner.receive_data(block)
        while scanner.next_event() not in (NEED_DATA, End()):
            pass
    return time.process_time() - began


@pytest.mark.parametrize(
    ("block", "size"), [(1, 5_000), (1000, 200_000), (READ, 2_000_000), (2**30, 2_000_000)]
)
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_parsing_cost_is_linear_in_the_body(unit: bytes, block: int, size: int) -> None:
    assert_cost_is_linear(unit, block, size)


@pytest.mark.parametrize("block", [1000, 2**30])
def test_parsing_cost_is_linear_in_the_number_of_parts(block: int) -> None:
    assert_cost_is_linear(file(b""), block, 100_000)


def assert_cost_is_linear(unit: bytes, block: int, size: int) -> None:
    small = body_of(file(unit * (size // len(unit))))
    large = body_of(file(unit * (4 * size // len(unit))))
    assert seconds_to_scan(large, block) < 10 * seconds_to_scan(small, block) + 0.01
