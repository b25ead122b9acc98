"""Parses whole numbers from clients; formats and parses sizes for people."""

from __future__ import annotations

import re
from decimal import Decimal

LARGEST_NUMBER = 10**18
"""Larger than any file, and within 64 bits."""

_DIGITS = re.compile("[0-9]+")

_MOST_DIGITS = 30
"""`int` refuses more than 4300 digits, and is slow with many."""


def parse_digits(text: str) -> int | None:
    """The number in a text of only ASCII digits, without sign or space; None for other text.

    Numbers above `LARGEST_NUMBER` are parsed as `LARGEST_NUMBER`.
    """
    if not _DIGITS.fullmatch(text):
        return None
    return min(int(text), LARGEST_NUMBER) if len(text) <= _MOST_DIGITS else LARGEST_NUMBER


def parse_bounded(text: str) -> int | None:
    """Like `parse_digits`, but None for a number of `LARGEST_NUMBER` or more."""
    number = parse_digits(text)
    return None if number == LARGEST_NUMBER else number


_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")
_STEP = 1000
"""Factor between units: a MB is 10^6 bytes wherever people read or write one; a MiB is 2^20."""

_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,6})?) ?([KMGTP]?)(?:(i?)B|bytes?)?", re.IGNORECASE)


def bytes_in_words(count: int) -> str:
    """A size as "20 MB" or "1.4 GB", rounded down: free space must not look larger than it is."""
    unit, step = 0, 1
    while count >= step * _STEP and unit < len(_UNITS) - 1:
        unit, step = unit + 1, step * _STEP
    if unit == 0:
        return "1 byte" if count == 1 else f"{count} bytes"
    tenths = count * 10 // step
    is_round = tenths >= 100 or tenths % 10 == 0
    return f"{tenths // 10 if is_round else tenths / 10} {_UNITS[unit]}"


def parse_bytes(text: str) -> int:
    """The size in "50GB", "1.5 TiB" or "1000", in bytes; `ValueError` for anything else."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("must be a size, as in 50GB")
    number, unit, is_binary = found.groups()
    step = 1024 if is_binary else _STEP
    return int(Decimal(number) * step ** " KMGTP".index(unit.upper() or " "))
