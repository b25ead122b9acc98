"""The scanner against the simplest correct parser, which looks at the whole body."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.errors import MalformedBody
from app.ingest.multipart import (
    NEED_DATA,
    Field,
    FileBegin,
    FileData,
    MultipartScanner,
    PartHeaders,
    decode_utf8,
    parse_boundary,
    parse_part_headers,
)
from tests.cost import HOSTILE, assert_cost_is_linear
from tests.ingest.form_bodies import BOUNDARY, CLOSING, DELIMITER, FilePart, Part, scan

REFUSED = "refused"

FIELD_HEADERS = b'\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
FILE_HEADERS = b'\r\nContent-Disposition: form-data; name="f"; filename="b.mp4"\r\n\r\n'

pieces = st.sampled_from(
    [
        *(b"\r", b"\n", b"\r\n", b"-", b"--", b"\r\n--", b"x", b"\x00\xff"),
        *(DELIMITER, DELIMITER[:-1], DELIMITER[1:], BOUNDARY, CLOSING),
        *(DELIMITER + FIELD_HEADERS, DELIMITER + FILE_HEADERS, FILE_HEADERS, b"\r\n\r\n"),
    ]
)
bodies = st.lists(pieces, max_size=25).map(b"".join)
carriage_returns = st.text("\r\n-", max_size=200).map(str.encode)


def parts_of(body: bytes) -> list[Part] | str:
    """What RFC 2046, 5.1.1 makes of a whole body; `REFUSED` if it is not one."""
    _preamble, *rest = (b"\r\n" + body).split(DELIMITER, 1)
    parts: list[Part] = []
    while rest and not rest[0].startswith(b"--"):
        head, is_whole, after = rest[0].partition(b"\r\n\r\n")
        content, *rest = after.split(DELIMITER, 1)
        if not is_whole or not rest:
            return REFUSED
        try:
            parts.append(part_of(parse_part_headers(head), content))
        except MalformedBody:
            return REFUSED
    return parts if rest else REFUSED


def part_of(headers: PartHeaders, content: bytes) -> Part:
    if headers.filename is None:
        return Field(headers.name, decode_utf8(content))
    return FileBegin(headers.name, headers.filename, headers.content_type), content


def scanned(body: bytes, cuts: list[int]) -> list[Part] | str:
    positions = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    blocks = [body[start:end] for start, end in itertools.pairwise(positions)]
    try:
        return scan(*blocks)
    except MalformedBody:
        return REFUSED


@settings(max_examples=500)
@given(bodies, st.lists(st.integers(min_value=0), max_size=30))
def test_a_streamed_body_is_parsed_like_a_whole_one(body: bytes, cuts: list[int]) -> None:
    assert scanned(body, cuts) == parts_of(body)


@settings(max_examples=300)
@given(carriage_returns, st.lists(st.integers(min_value=0), max_size=30))
@example(b"\r" * 200, list(range(250)))
def test_a_payload_of_line_ends_arrives_unchanged(payload: bytes, cuts: list[int]) -> None:
    body = DELIMITER + FILE_HEADERS + payload + CLOSING
    expected: FilePart = (FileBegin("f", "b.mp4", None), payload)
    assert scanned(body, cuts) == parts_of(body) == [expected]


@given(carriage_returns)
def test_a_body_may_arrive_byte_by_byte(payload: bytes) -> None:
    body = DELIMITER + FILE_HEADERS + payload + CLOSING
    assert scanned(body, list(range(len(body)))) == parts_of(body)


@given(st.lists(st.sampled_from([b"\r", b"\r\n", DELIMITER[:-1], b"x"]), max_size=200))
def test_a_block_makes_one_event_per_piece_of_payload(units: list[bytes]) -> None:
    """Bytes that look like the start of a delimiter do not split the payload into tiny pieces."""
    scanner = MultipartScanner(BOUNDARY)
    scanner.receive_data(DELIMITER + FILE_HEADERS)
    while scanner.next_event() is not NEED_DATA:
        pass
    events = [event for unit in units for event in fed(scanner, unit)]
    assert len(events) <= 2 * len(units)
    assert sum(len(event) for event in events) <= sum(map(len, units))


def fed(scanner: MultipartScanner, block: bytes) -> list[bytes]:
    scanner.receive_data(block)
    found = []
    while (event := scanner.next_event()) is not NEED_DATA:
        assert isinstance(event, FileData)
        found.append(bytes(event.data))
    return found


# ---- headers -------------------------------------------------------------------------------------

header_pieces = st.lists(
    st.sampled_from(
        [
            *("; ", ";", "=", '"', "\\", "%22", "'", " ", "\t", "é", "\x00", "\x7f", "a", "*"),
            *("form-data", "name=", "filename=", "filename*=", "UTF-8''", "%FF", "boundary="),
        ]
    ),
    max_size=15,
).map("".join)

plain_names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1)


@given(header_pieces | st.text(max_size=60))
def test_the_headers_of_a_part_are_read_or_refused(text: str) -> None:
    block = f"\r\nContent-Disposition: form-data; {text}".encode()
    try:
        headers = parse_part_headers(block)
    except MalformedBody:
        return
    assert headers.name
    assert not any(ord(character) < 0x20 for character in headers.name + (headers.filename or ""))


@given(plain_names.filter(lambda name: "%22" not in name))
def test_any_name_survives_the_quoting_of_browsers_and_of_the_standard(name: str) -> None:
    percent = name.replace("\\", "\\\\").replace('"', "%22")
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    for quoted in (percent, escaped):
        text = f'\r\nContent-Disposition: form-data; name="a"; filename="{quoted}"'
        assert parse_part_headers(text.encode()).filename == name


@given(st.from_regex(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]", fullmatch=True))
def test_every_boundary_the_standard_allows_is_read(boundary: str) -> None:
    header = f'Multipart/Form-Data ; charset=utf-8; boundary="{boundary}"'
    assert parse_boundary(header) == boundary.encode()


@given(header_pieces | st.text(max_size=60))
def test_a_content_type_has_a_boundary_or_is_refused(text: str) -> None:
    try:
        boundary = parse_boundary(f"multipart/form-data{text}")
    except MalformedBody:
        return
    assert 1 <= len(boundary) <= 100
    assert b"\r" not in boundary


READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "boundary": (parse_boundary, "multipart/form-data; "),
    "part": (
        lambda text: parse_part_headers(text.encode()),
        "\r\nContent-Disposition: form-data; ",
    ),
    "name": (
        lambda text: parse_part_headers(text.encode()),
        '\r\nContent-Disposition: form-data; name="',
    ),
}


def test_parsing_cost_is_linear_in_the_headers() -> None:
    for read, head in READERS.values():
        for unit in HOSTILE.values():
            assert_cost_is_linear(read, head, unit, "z")
