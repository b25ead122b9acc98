"""Names and keys from strangers: short and plain, or refused."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.core.policy import (
    MAX_FILENAME_CHARACTERS,
    MAX_KEY_CHARACTERS,
    UploadPolicy,
    check_client_key,
    check_fingerprint,
)

PLAIN = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")

texts = st.text(max_size=20) | st.text(sorted(PLAIN), max_size=MAX_KEY_CHARACTERS + 5)
pieces = st.sampled_from(["..", ".", "/", "\\", " ", "a", "é", "\x00", "\u2028", "C:", "%2e", "\r"])
names = st.lists(pieces, max_size=12).map("".join) | st.text(st.characters(), max_size=30)


@given(texts)
def test_a_client_key_is_kept_unchanged_or_refused(text: str) -> None:
    is_plain = 1 <= len(text) <= MAX_KEY_CHARACTERS and set(text) <= PLAIN
    try:
        assert check_client_key(text) == text
    except InvalidRequest:
        assert not is_plain
    else:
        assert is_plain


@given(texts)
def test_a_fingerprint_has_only_printable_characters(text: str) -> None:
    try:
        assert check_fingerprint(text) == text
    except InvalidRequest:
        return
    assert 1 <= len(text) <= MAX_KEY_CHARACTERS
    assert not any(unicodedata.category(character) in {"Cc", "Cs"} for character in text)


@given(names)
def test_a_file_name_cannot_leave_the_folder_and_hides_nothing(text: str) -> None:
    try:
        name = UploadPolicy(max_length=1).check_filename(text)
    except InvalidRequest:
        return
    assert 1 <= len(name) <= MAX_FILENAME_CHARACTERS
    assert not {"", ".", ".."} & set(name.split("/"))
    assert "\\" not in name
    assert not any(unicodedata.category(character) in {"Cc", "Cs"} for character in name)
    assert name.encode()
