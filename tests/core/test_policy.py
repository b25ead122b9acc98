"""What may be uploaded, and under which name."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ChunkMismatch, InvalidRequest, TooLarge, TypeNotAllowed
from app.core.policy import (
    MAX_FILENAME_CHARACTERS,
    MAX_KEY_CHARACTERS,
    UploadPolicy,
    check_chunk,
    check_client_key,
    check_fingerprint,
)
from app.core.ranges import ByteRange

ANYTHING = UploadPolicy(max_length=100)
VIDEOS = UploadPolicy(max_length=100, allowed_extensions=frozenset({"mp4", "mov"}))


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [
        ("holiday.mp4", "holiday.mp4"),
        ("  holiday.mp4 ", "holiday.mp4"),
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("..\\..\\windows\\system.ini", "windows/system.ini"),
        ("C:\\videos\\a.mp4", "C:/videos/a.mp4"),
        ("a/./b//c.mp4", "a/b/c.mp4"),
        ("a/../b.mp4", "a/b.mp4"),
        ("..", "unnamed"),
        (".", "unnamed"),
        ("", "unnamed"),
        ("   ", "unnamed"),
        ("///", "unnamed"),
        (".hidden", ".hidden"),
        ("...", "..."),
        ("e\u0301te\u0301.mp4", "\u00e9t\u00e9.mp4"),
        ('quote".mp4', 'quote".mp4'),
        ("映画.mp4", "映画.mp4"),
        ("🎬.mp4", "🎬.mp4"),
    ],
)
def test_names_stay_readable_and_cannot_leave_the_folder(given_name: str, kept: str) -> None:
    assert ANYTHING.check_filename(given_name) == kept


@pytest.mark.parametrize("character", ["\0", "\x1f", "\x7f", "\x85", "\n", "\r", "\ud800"])
def test_control_characters_are_refused(character: str) -> None:
    with pytest.raises(InvalidRequest, match="control characters"):
        ANYTHING.check_filename(f"a{character}b.mp4")


def test_names_have_a_maximum_length() -> None:
    longest = "n" * MAX_FILENAME_CHARACTERS
    assert ANYTHING.check_filename(longest) == longest
    with pytest.raises(InvalidRequest, match="1024"):
        ANYTHING.check_filename(longest + "n")


@given(st.text(max_size=60))
def test_a_cleaned_name_is_stable_normalised_and_without_dot_segments(text: str) -> None:
    try:
        name = ANYTHING.check_filename(text)
    except InvalidRequest:
        return
    assert name
    assert unicodedata.is_normalized("NFC", name)
    assert not {"", ".", ".."} & set(name.split("/"))
    assert "\\" not in name
    assert ANYTHING.check_filename(name).strip() == name.strip()


@pytest.mark.parametrize("name", ["a.mp4", "a.MP4", "b.tar.mov", "folder/a.Mov"])
def test_extensions_on_the_list_are_accepted_in_any_case(name: str) -> None:
    assert VIDEOS.check_filename(name) == name


@pytest.mark.parametrize("name", ["a.exe", "mp4", "a.mp4.exe", "a", ".mp4", "a.mp4/b", ""])
def test_extensions_off_the_list_are_refused(name: str) -> None:
    with pytest.raises(TypeNotAllowed, match="mov, mp4"):
        VIDEOS.check_filename(name)


@pytest.mark.parametrize("length", [0, 1, 100])
def test_lengths_up_to_the_limit_are_accepted(length: int) -> None:
    assert ANYTHING.check_length(length) == length


def test_lengths_beyond_the_limit_are_too_large() -> None:
    with pytest.raises(TooLarge, match="more than the 100 bytes"):
        ANYTHING.check_length(101)


def test_negative_lengths_are_malformed() -> None:
    with pytest.raises(InvalidRequest):
        ANYTHING.check_length(-1)


@pytest.mark.parametrize("key", ["a", "3f2b-11", "A.b_c:d", "x" * MAX_KEY_CHARACTERS])
def test_plain_client_keys_are_accepted(key: str) -> None:
    assert check_client_key(key) == key


@pytest.mark.parametrize(
    "key", ["", "x" * (MAX_KEY_CHARACTERS + 1), "a/b", "a b", "a\n", "ä", "a\0", "../a"]
)
def test_other_client_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidRequest):
        check_client_key(key)


def test_fingerprints_are_short_and_printable() -> None:
    assert check_fingerprint("Ferien 2020.mp4:12:34") == "Ferien 2020.mp4:12:34"
    assert len(check_fingerprint("x" * MAX_KEY_CHARACTERS)) == MAX_KEY_CHARACTERS


@pytest.mark.parametrize("text", ["", "x" * (MAX_KEY_CHARACTERS + 1), "a\nb", "\0", "\ud800"])
def test_other_fingerprints_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check_fingerprint(text)


def test_a_chunk_may_reach_the_end_of_the_file_and_not_beyond() -> None:
    check_chunk(ByteRange(5, 10), 10)
    check_chunk(ByteRange(5, 10_000), None)
    with pytest.raises(ChunkMismatch, match="byte 11"):
        check_chunk(ByteRange(5, 11), 10)
