"""Whole numbers as clients write them."""

from __future__ import annotations

import re

LARGEST_NUMBER = 10**18
"""Larger than any file, and within 64 bits."""

_DIGITS = re.compile("[0-9]+")

_MOST_DIGITS = 30
"""`int` refuses more than 4300 digits, and is slow with many."""


def parse_digits(text: str) -> int | None:
    """The number in a text of ASCII digits alone, without sign or space; None for other texts.

    Larger numbers than `LARGEST_NUMBER` are read as `LARGEST_NUMBER`.
    """
    if not _DIGITS.fullmatch(text):
        return None
    return min(int(text), LARGEST_NUMBER) if len(text) <= _MOST_DIGITS else LARGEST_NUMBER


def parse_bounded(text: str) -> int | None:
    """As `parse_digits`, and None for a number of `LARGEST_NUMBER` or more."""
    number = parse_digits(text)
    return None if number == LARGEST_NUMBER else number
