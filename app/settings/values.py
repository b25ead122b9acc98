"""Parses numbers, words and folders of settings, and finds the defaults that depend on the machine.

Parsers raise `ValueError` for values that cannot be used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from app.domain.ranges import MAX_BYTES

STAGING = Path("/tmp/sluice")

MAX_SECONDS = 100 * 365 * 24 * 3600
"""A hundred years, so that subtracting it always gives a valid date."""

_SECRET = re.compile("[A-Za-z0-9]{32,}")


def default_staging(path: Path = STAGING) -> Path:
    """The folder in /tmp, with our user number if another user has it already."""
    try:
        is_others = path.lstat().st_uid != os.geteuid()
    except OSError:
        is_others = False
    return path.with_name(f"{path.name}-{os.geteuid()}") if is_others else path


def default_workers() -> int:
    """As many as there are cores, and two at least."""
    return max(2, len(os.sched_getaffinity(0)))


def positive(text: str) -> int:
    """A whole number above 0."""
    value = int(text)
    if value <= 0:
        raise ValueError("must be above 0")
    return value


def seconds(text: str) -> float:
    """A time in seconds, above 0."""
    value = float(text)
    if not 0 < value <= MAX_SECONDS:
        raise ValueError(f"must be above 0 and at most {MAX_SECONDS}")
    return value


def count(text: str) -> int:
    """A whole number, 0 or more."""
    value = int(text)
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


def rate(text: str) -> float:
    """A finite number, 0 or more."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError("must be 0 or more")
    return value


def folder(text: str) -> Path:
    """The absolute path of a folder; `~` is the home of the user."""
    if not text:
        raise ValueError("must name a folder")
    return Path(text).expanduser().absolute()


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that takes only these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return parse


def switch(text: str) -> bool:
    """Whether it is on: 0 or 1."""
    if text not in {"0", "1"}:
        raise ValueError("must be 0 or 1")
    return text == "1"


def extensions(text: str) -> frozenset[str]:
    """File name extensions, separated by commas, without their dots."""
    words = (word.strip().lower().removeprefix(".") for word in text.split(","))
    return frozenset(word for word in words if word)


def link_secret(text: str) -> str:
    """Letters and digits, which an nginx configuration takes without quotes, or nothing."""
    if text and not _SECRET.fullmatch(text):
        raise ValueError("must be 32 letters and digits, or more")
    return text


def secret(text: str) -> str:
    """A secret of an OAuth client (RFC 6749, appendix A.2)."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError("must be printable ASCII characters")
    return text


def words(text: str) -> frozenset[str]:
    """Words separated by commas; capitals count."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())


def file_bytes(text: str) -> int:
    """A size that a file can have."""
    value = int(text)
    if not 0 < value <= MAX_BYTES:
        raise ValueError(f"must be 1 to {MAX_BYTES}")
    return value


def optional_count(text: str) -> int | None:
    """A number from 0 on, or nothing."""
    if not text:
        return None
    value = int(text)
    if value < 0:
        raise ValueError("must be 0 or more")
    return value
