"""Content-Digest (RFC 9530) as clients send it."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import DigestMismatch, InvalidRequest
from app.http.digests import ALGORITHMS, digest_source, parse_content_digest
from app.ingest.source import BodySource
from tests.digests import digest, digest_field
from tests.storage.sources import PiecesSource

DATA = b"some bytes of a video"


def header(name: str, data: bytes = DATA) -> str:
    return digest_field(name, data)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_known_algorithm_is_read(name: str) -> None:
    assert parse_content_digest(header(name)) == (ALGORITHMS[name], digest(name, DATA))


def test_the_strongest_known_algorithm_is_used() -> None:
    several = f"{header('md5')}, adler=:AAAAAA==:,{header('sha-256')}"
    parsed = parse_content_digest(several)
    assert parsed is not None
    assert parsed[0] == "sha256"


@pytest.mark.parametrize("text", ["", "adler=:AAAAAA==:", "garbage", "=", ",,,"])
def test_unknown_algorithms_are_ignored(text: str) -> None:
    assert parse_content_digest(text) is None


@pytest.mark.parametrize(
    "value",
    [
        "",
        ":",
        "::",
        "abc",
        ":abc:",
        ":AAAA:",
        ":*" + "A" * 43 + ":",
        "A" * 43 + "=",
        ":" + "A" * 43 + "=",
        "A" * 43 + "=:",
        ":" + "A" * 44 + ":",
        ":é:",
        '"' + "A" * 43 + '="',
    ],
)
def test_a_known_algorithm_with_a_malformed_value_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_content_digest(f"sha-256={value}")


@pytest.mark.parametrize("encoded", [f"{'A' * 21}B==", f"{'A' * 22}=", "A" * 22])
def test_pad_bits_may_have_any_value_and_padding_may_be_missing(encoded: str) -> None:
    """RFC 9651 section 4.2.7."""
    assert parse_content_digest(f"md5=:{encoded}:") == ("md5", bytes(16))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = parse_content_digest(f"sha-256={text}")
    except InvalidRequest:
        return
    assert parsed is not None
    assert len(parsed[1]) == hashlib.new(parsed[0]).digest_size


def drain(source: BodySource) -> None:
    buffer = memoryview(bytearray(5))
    while source.readinto(buffer) != 0:
        pass
    source.finish()


def test_without_a_digest_the_source_is_unchanged() -> None:
    source = PiecesSource(DATA)
    assert digest_source(source, None) is source
    assert digest_source(source, "adler=:AAAAAA==:") is source


def test_the_right_digest_passes() -> None:
    source = PiecesSource(DATA, (3, None))
    checked = digest_source(source, header("sha-512"))
    assert checked.is_verified_at_end
    assert checked.remaining == len(DATA)
    drain(checked)
    assert source.is_finished


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_wrong_digest_is_reported_at_the_end(name: str) -> None:
    with pytest.raises(DigestMismatch):
        drain(digest_source(PiecesSource(DATA), header(name, b"other bytes")))
