"""Header values of tus, without a server."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest, UploadNotFound
from app.ingest.checksum import ALGORITHMS
from app.protocols.tus.headers import (
    MAX_PARTS,
    file_name,
    format_concat,
    format_date,
    format_metadata,
    parse_checksum,
    parse_concat,
    parse_metadata,
    parse_number,
)
from tests.cost import HOSTILE, assert_cost_is_linear

ID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "f" * 32

READERS: dict[str, Callable[[str], object]] = {
    "number": lambda text: parse_number("Upload-Offset", text),
    "metadata": parse_metadata,
    "checksum": parse_checksum,
    "concat": parse_concat,
}


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("007", 7), ("9" * 18, int("9" * 18)), ("9" * 8000, 10**18)]
)
def test_digits_are_a_byte_count(text: str, number: int) -> None:
    assert parse_number("Upload-Offset", text) == number


@pytest.mark.parametrize(
    "text",
    [None, "", " 1", "1 ", "+1", "-1", "1.0", "0x1", "1_0", "1,2", "٣", "²", "1\n"],
)
def test_anything_else_is_not_a_byte_count(text: str | None) -> None:
    with pytest.raises(InvalidRequest, match="Upload-Length"):
        parse_number("Upload-Length", text)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("key", {"key": b""}),
        ("key ", {"key": b""}),
        ("a YQ==,b Yg==", {"a": b"a", "b": b"b"}),
        ("a YQ==, b", {"a": b"a", "b": b""}),
        ("filename //79", {"filename": b"\xff\xfe\xfd"}),
        ("!#$%&'()*+-./:;<=>?@[\\]^_`{|}~", {"!#$%&'()*+-./:;<=>?@[\\]^_`{|}~": b""}),
    ],
)
def test_metadata_is_pairs_of_keys_and_bytes(text: str, pairs: dict[str, bytes]) -> None:
    assert parse_metadata(text) == pairs


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "a YQ==,",
        ",a YQ==",
        "a YQ==,,b",
        "a YQ==,a YQ==",
        "a,a",
        "ключ YQ==",
        "k\x00 YQ==",
        "a\tYQ==",
        "a YQ",
        "a YQ== YQ==",
        "a  YQ==",
        "a YQ=\n=",
        "a Y*==",
        "a Яg==",
        "a -_-_",
    ],
)
def test_malformed_metadata_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_metadata(text)


@given(st.dictionaries(st.from_regex(r"[a-zA-Z0-9_.-]{1,20}", fullmatch=True), st.binary()))
def test_whatever_a_client_encodes_is_read(pairs: dict[str, bytes]) -> None:
    assert parse_metadata(",".join(f"{k} {encoded(v)}" for k, v in pairs.items())) == pairs


@given(st.text())
def test_any_metadata_is_read_or_refused(text: str) -> None:
    """Catches every error that is not ours, which would be a 500."""
    with suppress(InvalidRequest):
        parse_metadata(text)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({}, ""),
        ({"filename": b"a.mp4", "name": b"b.mp4"}, "a.mp4"),
        ({"filename": b"", "name": b"b.mp4"}, "b.mp4"),
        ({"filename": "кино.mp4".encode()}, "кино.mp4"),
        ({"filename": b"a\xff.mp4"}, "a�.mp4"),
    ],
)
def test_the_file_name_is_in_the_metadata(metadata: dict[str, bytes], name: str) -> None:
    assert file_name(metadata) == name


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1))
def test_a_file_name_survives_metadata(name: str) -> None:
    assert file_name(parse_metadata(format_metadata(name))) == name


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_checksum_of_every_algorithm_is_read(algorithm: str) -> None:
    if algorithm == "crc32":
        digest = zlib.crc32(b"bytes").to_bytes(4, "big")
    elif algorithm == "crc32c":
        digest = crc32c(b"bytes").to_bytes(4, "big")
    else:
        digest = hashlib.new(algorithm, b"bytes").digest()
    assert parse_checksum(f"{algorithm} {encoded(digest)}") == (algorithm, digest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha1",
        "sha1 ",
        f"SHA1 {encoded(bytes(20))}",
        f"sha1  {encoded(bytes(20))}",
        f"sha1 {encoded(bytes(19))}",
        f"sha1 {encoded(bytes(21))}",
        f"sha1 {bytes(20).hex()}",
        f"sha1 {encoded(bytes(20))} more",
        f"shake_128 {encoded(bytes(16))}",
        f"blake2b {encoded(bytes(64))}",
        "sha1 ÿ",
    ],
)
def test_other_checksums_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_checksum(text)


def test_a_partial_upload_has_no_parts() -> None:
    assert parse_concat("partial") is None


@pytest.mark.parametrize(
    "reference",
    [
        f"/tus/{ID}",
        f"/videos/tus/{ID}",
        f"http://127.0.0.1:8000/tus/{ID}",
        f"https://user:secret@example.org/tus/{ID}?a=/b#c",
        f"//example.org/tus/{ID}",
        ID,
    ],
)
def test_the_id_of_a_part_is_the_end_of_its_path(reference: str) -> None:
    parts = parse_concat(f"final;{reference} /tus/{OTHER_ID}")
    assert parts is not None
    assert [part.upload_id for part in parts] == [ID, OTHER_ID]
    assert format_concat(parts) == f"final;{reference} /tus/{OTHER_ID}"


@pytest.mark.parametrize(
    "text", ["", "final", "final;", "final; ", "Partial", "partial;", f"/{ID}"]
)
def test_a_concat_header_other_than_partial_or_final_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_concat(text)


@pytest.mark.parametrize(
    "reference",
    [
        "/tus/",
        f"/tus/{ID}/",
        f"/tus/{ID}/..",
        "/tus/../../etc/passwd",
        f"/tus/{ID}%00",
        f"/tus/{ID}\x00",
        f"/tus/{ID.upper()}",
        f"/tus/%2e%2e/{ID}%2f",
        f"/tus/?id={ID}",
        f"/tus/#{ID}",
        "file:///etc/passwd",
        "http://[",
        "http://[::1",
        f"http://[v1]/{ID[:-1]}",
        f"/tus/{ID[:-1]}٣",
    ],
)
def test_a_url_without_an_id_names_no_part(reference: str) -> None:
    with pytest.raises(UploadNotFound):
        parse_concat(f"final;/tus/{ID} {reference}")


def test_dates_have_the_http_format() -> None:
    moment = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    assert format_date(moment) == "Tue, 03 Feb 2026 04:05:06 GMT"


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("head", ["", "sha1 ", "final;", "filename "])
def test_parsing_cost_is_linear_in_the_length(reader: str, unit: str, head: str) -> None:
    assert_cost_is_linear(READERS[reader], head, unit, "x")


def test_the_parts_of_a_final_upload_are_limited() -> None:
    parts = parse_concat("final;" + f"/tus/{ID} " * MAX_PARTS)
    assert parts is not None
    assert len(parts) == MAX_PARTS
    with pytest.raises(InvalidRequest):
        parse_concat("final;" + f"/tus/{ID} " * (MAX_PARTS + 1))


@pytest.mark.parametrize("between", [" ", "  ", "   "])
@pytest.mark.parametrize("start", ["", " ", "  "])
def test_the_list_of_parts_survives_unchanged(start: str, between: str) -> None:
    text = f"final;{start}/tus/{ID}{between}https://a.example/{OTHER_ID}"
    parts = parse_concat(text)
    assert parts is not None
    assert [part.upload_id for part in parts] == [ID, OTHER_ID]
    assert format_concat(parts) == text
