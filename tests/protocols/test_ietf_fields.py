"""The header fields of the draft, and the lengths they give."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.http.digests import (
    MAX_FIELD_CHARACTERS,
    parse_repr_digest,
    parse_wanted_digests,
    write_repr_digest,
)
from app.protocols.ietf.interop import (
    MAX_INTEGER,
    NEWEST,
    VERSIONS,
    InconsistentLength,
    Transfer,
    parse_boolean,
    parse_filename,
    parse_length,
    write_limits,
)

TEXT = st.text(st.characters(max_codepoint=255)) | st.text("?10=:;,()\"\\*@%- az'&.")


@pytest.mark.parametrize(
    ("text", "value"), [("?1", True), ("?0", False), (" ?1 ", True), ("?1;parameter=1", True)]
)
def test_a_boolean_is_read(text: str, value: bool) -> None:
    assert parse_boolean(text, "Upload-Complete") is value


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("007", 7), (str(MAX_INTEGER), MAX_INTEGER)])
def test_a_length_is_read(text: str, value: int) -> None:
    assert parse_length(text, "Upload-Length") == value


@given(TEXT)
@example("(((((((((")
@example('"' + "\\" * 1000)
@example("@99999999999999")
@example('%"%ff"')
def test_any_text_is_read_or_refused(text: str) -> None:
    """Catches every error that is not ours, which would be a 500."""
    parsers: list[Callable[[], object]] = [
        lambda: parse_boolean(text, "Upload-Complete"),
        lambda: parse_length(text, "Upload-Length"),
        lambda: parse_repr_digest(text),
        lambda: parse_wanted_digests(text),
    ]
    for parse in parsers:
        with suppress(InvalidRequest):
            parse()


@given(TEXT, TEXT)
def test_any_content_disposition_yields_a_name(disposition: str, content_type: str) -> None:
    assert parse_filename(disposition, content_type)


def test_limits_fit_into_structured_field_integers() -> None:
    assert write_limits({"max-size": 10**18, "max-age": 5}) == f"max-size={MAX_INTEGER}, max-age=5"


def test_a_digest_is_written_as_it_is_read() -> None:
    text = write_repr_digest("sha-256", bytes(range(32)))
    assert parse_repr_digest(text) == "sha256:" + bytes(range(32)).hex()
    assert parse_repr_digest("unknown=:AAAA:") is None


def test_wanted_digests_are_ordered_by_weight() -> None:
    text = "sha-256=3, unknown=10, sha-512=9, md5=0"
    assert parse_wanted_digests(text) == ["sha-512", "sha-256"]
    assert parse_wanted_digests("") == []


@pytest.mark.parametrize(
    ("transfer", "known", "length"),
    [
        (Transfer(is_last=False, offset=0, content_length=5, upload_length=None), None, None),
        (Transfer(is_last=False, offset=0, content_length=5, upload_length=9), None, 9),
        (Transfer(is_last=True, offset=4, content_length=5, upload_length=None), None, 9),
        (Transfer(is_last=True, offset=4, content_length=5, upload_length=9), 9, 9),
        (Transfer(is_last=True, offset=4, content_length=None, upload_length=None), None, None),
        (Transfer(is_last=False, offset=4, content_length=5, upload_length=None), 9, 9),
    ],
)
def test_a_length_follows_from_the_headers(
    transfer: Transfer, known: int | None, length: int | None
) -> None:
    assert transfer.length(known) == length


@pytest.mark.parametrize(
    ("transfer", "known"),
    [
        (Transfer(is_last=True, offset=0, content_length=5, upload_length=6), None),
        (Transfer(is_last=True, offset=0, content_length=5, upload_length=None), 6),
        (Transfer(is_last=False, offset=0, content_length=5, upload_length=9), 6),
        (Transfer(is_last=False, offset=4, content_length=5, upload_length=None), 8),
        (Transfer(is_last=False, offset=4, content_length=None, upload_length=None), 3),
    ],
)
def test_lengths_that_differ_are_inconsistent(transfer: Transfer, known: int | None) -> None:
    with pytest.raises(InconsistentLength):
        transfer.length(known)


def test_completeness_is_written_in_the_header_of_the_version() -> None:
    assert NEWEST.write_completeness(is_complete=True) == {"Upload-Complete": "?1"}
    assert VERSIONS[3].write_completeness(is_complete=True) == {"Upload-Incomplete": "?0"}
    assert VERSIONS[3].write_completeness(is_complete=False) == {"Upload-Incomplete": "?1"}


@pytest.mark.parametrize("parse", [parse_repr_digest, parse_wanted_digests])
def test_a_field_too_long_to_parse_in_time_is_refused(parse: Callable[[str], object]) -> None:
    parse("a=1" + ",a=1" * (MAX_FIELD_CHARACTERS // 4 - 1))
    with pytest.raises(InvalidRequest):
        parse("a=1" + ",a=1" * (MAX_FIELD_CHARACTERS // 4))
