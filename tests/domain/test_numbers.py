"""Numbers of clients: ASCII digits, however many."""

import pytest

from app.domain.numbers import LARGEST_NUMBER, parse_bounded, parse_digits


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
