"""The header codecs of tus and of the IETF's uploads either read a value or refuse it."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest, UploadError
from app.http.digests import (
    ALGORITHMS,
    parse_repr_digest,
    parse_wanted_digests,
    write_repr_digest,
)
from app.protocols.ietf import interop as ietf
from app.protocols.tus import headers as tus
from tests.cost import HOSTILE, assert_cost_is_linear
from tests.digests import digest

READERS: dict[str, Callable[[str], object]] = {
    "Upload-Offset of tus": lambda text: tus.parse_number("Upload-Offset", text),
    "Upload-Metadata": tus.parse_metadata,
    "Upload-Checksum": tus.parse_checksum,
    "Upload-Concat": tus.parse_concat,
    "Upload-Complete": lambda text: ietf.parse_boolean(text, "Upload-Complete"),
    "Upload-Offset": lambda text: ietf.parse_length(text, "Upload-Offset"),
    "Repr-Digest": parse_repr_digest,
    "Want-Repr-Digest": parse_wanted_digests,
    "Content-Disposition": lambda text: ietf.parse_filename(text, "video/mp4"),
}

fragments = [
    *' ,;=:?"\\()@%-*/+.\t',
    *("?0", "?1", "1", "-1", "9" * 20, "1e5", "0x10", "٣", "\xff", "\x00", "\x85", "é"),
    *("filename ", "AAAA", "AA==", "sha1 ", "crc32 ", "sha-256=:", "md5=", "partial", "final;"),
    *("http://[", "/tus/" + "0" * 32, "inline", "filename*=", "UTF-8''", "%ff"),
]
header_like = st.lists(st.sampled_from(fragments), max_size=12).map("".join)
keys = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=","))
metadata = st.dictionaries(keys.filter(len), st.binary(max_size=30), min_size=1, max_size=6)
ids = st.text("0123456789abcdef", min_size=32, max_size=32)
prefixes = st.sampled_from(["", "/tus/", "http://a/tus/", "https://[::1]:8000/x/", "../"])
file_names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1)
known = st.sampled_from(sorted(ALGORITHMS))


@given(st.sampled_from(sorted(READERS)), header_like | st.text(max_size=40))
def test_any_header_value_is_read_or_refused(name: str, text: str) -> None:
    """Catches every error that is not ours, which would be a 500."""
    with suppress(UploadError):
        READERS[name](text)


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", READERS)
def test_the_cost_of_a_header_grows_with_its_length(name: str, unit: str) -> None:
    assert_cost_is_linear(READERS[name], "final;" if name == "Upload-Concat" else "", unit, "z")


# ---- tus -----------------------------------------------------------------------------------------


@given(metadata)
def test_metadata_survives_key_by_key(pairs: dict[str, bytes]) -> None:
    text = ",".join(f"{key} {b64encode(value).decode()}" for key, value in pairs.items())
    assert tus.parse_metadata(text) == pairs
    assert list(tus.parse_metadata(text)) == list(pairs)


@given(metadata, st.data())
def test_a_repeated_key_is_refused(pairs: dict[str, bytes], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(pairs)))
    text = ",".join(f"{name} AAAA" for name in [*pairs, key])
    with pytest.raises(InvalidRequest):
        tus.parse_metadata(text)


@given(file_names)
def test_the_name_of_an_upload_survives_its_metadata(name: str) -> None:
    assert tus.file_name(tus.parse_metadata(tus.format_metadata(name))) == name


@given(st.lists(st.tuples(prefixes, ids), min_size=1, max_size=8))
def test_the_parts_of_a_final_upload_survive_as_written(parts: list[tuple[str, str]]) -> None:
    text = "final;" + " ".join(prefix + upload_id for prefix, upload_id in parts)
    read = tus.parse_concat(text)
    assert read is not None
    assert [part.upload_id for part in read] == [upload_id for _, upload_id in parts]
    assert tus.format_concat(read) == text


@given(st.text(max_size=12))
def test_a_byte_count_is_only_digits(text: str) -> None:
    is_number = text != "" and set(text) <= set("0123456789")
    try:
        assert tus.parse_number("Upload-Length", text) == int(text)
    except InvalidRequest:
        assert not is_number
    else:
        assert is_number


@given(st.binary(max_size=30), st.sampled_from(["sha1", "sha256", "md5"]), st.integers(0, 64))
def test_a_checksum_of_another_length_is_refused(data: bytes, name: str, length: int) -> None:
    digest = hashlib.new(name, data).digest()
    cut = (digest * 4)[:length]
    text = f"{name} {b64encode(cut).decode()}"
    if length == len(digest):
        assert tus.parse_checksum(text) == (name, digest)
    else:
        with pytest.raises(InvalidRequest):
            tus.parse_checksum(text)


# ---- IETF ----------------------------------------------------------------------------------------


@given(st.integers(0, ietf.MAX_INTEGER))
def test_a_length_survives_writing_and_reading(length: int) -> None:
    assert ietf.parse_length(str(length), "Upload-Length") == length


@given(st.text(max_size=12))
def test_only_an_integer_is_a_length(text: str) -> None:
    try:
        length = ietf.parse_length(text, "Upload-Length")
    except InvalidRequest:
        return
    assert 0 <= length <= ietf.MAX_INTEGER
    assert int(text.partition(";")[0]) == length


@given(known, st.binary(max_size=30))
def test_a_digest_survives_writing_and_reading(name: str, data: bytes) -> None:
    found = digest(name, data)
    text = write_repr_digest(name, found)
    assert parse_repr_digest(text) == f"{ALGORITHMS[name]}:{found.hex()}"


@given(st.dictionaries(known | st.just("unixsum"), st.integers(0, 10)))
def test_wanted_digests_are_the_known_ones_most_preferred_first(weights: dict[str, int]) -> None:
    text = ", ".join(f"{name}={weight}" for name, weight in weights.items())
    wanted = parse_wanted_digests(text)
    assert set(wanted) == {name for name in weights if name in ALGORITHMS and weights[name]}
    assert [weights[name] for name in wanted] == sorted(
        (weights[name] for name in wanted), reverse=True
    )
