"""Numbers of clients: ASCII digits, however many."""

import pytest

from app.core.numbers import (
    LARGEST_NUMBER,
    bytes_in_words,
    parse_bounded,
    parse_bytes,
    parse_digits,
)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert parse_digits(text) == parse_bounded(text) == number


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", "-1", "1.0", "1_0", "1e3", "0x1", "\u0663", "1\n"]
)
def test_other_texts_are_none(text: str) -> None:
    assert parse_digits(text) is None
    assert parse_bounded(text) is None


@pytest.mark.parametrize("text", [str(LARGEST_NUMBER), "9" * 19, "9" * 5000])
def test_a_number_beyond_any_file_is_the_largest_or_none(text: str) -> None:
    assert parse_digits(text) == LARGEST_NUMBER
    assert parse_bounded(text) is None


def test_sizes_are_decimal_unless_they_say_that_they_are_binary() -> None:
    assert [parse_bytes(text) for text in ("1000", "20 MB", "50gb", "1.5 TiB")] == [
        1000,
        20_000_000,
        50_000_000_000,
        3 * 2**39,
    ]
    assert [bytes_in_words(count) for count in (1, 999, 1000, 19_999_999, 2**30)] == [
        "1 byte",
        "999 bytes",
        "1 KB",
        "19 MB",
        "1 GB",
    ]
