"""The cost of parsing an input, compared with one four times as long."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from app.core.errors import UploadError
from app.deliver.conditional import RangeNotSatisfiable

SHORT, LONG = 8_000, 32_000
"""Characters. gunicorn accepts header lines of up to 8190 bytes, and joins repeated ones."""

HOSTILE = {
    "spaces": " ",
    "tabs": "\t",
    "spaces and commas": " ,",
    "commas": ",",
    "quotes": '"',
    "backslashes": "\\",
    "escaped quotes": '\\"',
    "semicolons": "; ",
    "open parameters": '; a="',
    "empty parameters": "; a=",
    "digits": "1",
    "minus signs": "-",
    "equals signs": "=",
    "colons": ":",
    "weak marks": "W/",
    "pairs": "a=1, ",
    "ranges": "1-2,",
    "apostrophes": "'",
    "percent signs": "%2",
}


def assert_cost_is_linear(read: Callable[[str], object], head: str, unit: str, tail: str) -> None:
    """Fail if four times the input costs close to sixteen times the work.

    A linear parser needs four times as much; ten leaves a margin for a busy machine.
    """
    short = head + unit * (SHORT // len(unit)) + tail
    long = head + unit * (LONG // len(unit)) + tail
    assert _seconds(read, long) < 10 * _seconds(read, short) + 0.02


def _seconds(read: Callable[[str], object], text: str) -> float:
    return min(_seconds_once(read, text) for _ in range(3))


def _seconds_once(read: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    with suppress(UploadError, RangeNotSatisfiable):
        read(text)
    return time.process_time() - began
