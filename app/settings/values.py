"""Parses numbers, words and folders of settings, and finds defaults that depend on the machine.

Parsers raise `ValueError` for values that cannot be used. The message says what can be.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from decimal import Decimal
from email.errors import ObsoleteHeaderDefect
from email.message import EmailMessage
from pathlib import Path

from app.core.numbers import parse_bytes
from app.core.ranges import MAX_BYTES

MAX_SECONDS = 100 * 365 * 24 * 3600
"""A hundred years, so that subtracting it always gives a valid date."""

_SECRET = re.compile("[A-Za-z0-9]{32,}")

_WHOLE_NUMBER = re.compile("[0-9]{1,30}")

_FRACTION = re.compile(r"[0-9]+\.[0-9]+")
"""Of a byte."""

_TIME = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?|[0-9]{1,3}e[0-9]{1,2}) ?([a-z]*)")

_UNIT_SECONDS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}

_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

_EXTENSION = re.compile(r"\.?(?:\w|[+-])+")

_MAIL_ADDRESS = re.compile(r"[^@\s<>\"]+@[^@\s<>\"]+")


def default_workers() -> int:
    """As many as there are cores, and two at least."""
    return max(2, len(os.sched_getaffinity(0)))


def whole(least: int, most: int) -> Callable[[str], int]:
    """A parser of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        digits = text.strip()
        value = int(digits) if _WHOLE_NUMBER.fullmatch(digits) else -1
        if not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return parse


count = whole(0, MAX_BYTES)


def optional_count(text: str) -> int | None:
    """As `count`, or nothing."""
    return count(text) if text.strip() else None


def sizes(least: int, most: int = MAX_BYTES) -> Callable[[str], int]:
    """A parser of sizes from `least` to `most` bytes, as in `20971520`, `20MiB` or `50GB`."""

    def parse(text: str) -> int:
        try:
            value = -1 if _FRACTION.fullmatch(text.strip()) else parse_bytes(text)
        except ValueError:
            value = -1
        if not least <= value <= most:
            raise ValueError(
                f"must be a size from {least} to {most} bytes, as in 20971520, 20MiB or 50GB"
            )
        return value

    return parse


def rate(text: str) -> float:
    """Bytes per second, 0 or more."""
    try:
        return float(sizes(0)(text))
    except ValueError:
        raise ValueError(
            f"must be 0 to {MAX_BYTES} bytes per second, as in 1024, 500KB or 1.5MB"
        ) from None


def seconds_within(least: float, most: float = MAX_SECONDS) -> Callable[[str], float]:
    """A parser of times from `least` to `most` seconds, as in `90`, `10min`, `2h` or `7d`."""

    def parse(text: str) -> float:
        found = _TIME.fullmatch(text.strip().lower())
        unit = _UNIT_SECONDS.get(found[2]) if found else None
        value = float(Decimal(found[1]) * unit) if found and unit else math.nan
        if not least <= value <= most:
            raise ValueError(
                f"must be a time from {least:g} to {most:.0f} seconds, as in 90, 10min, 2h or 7d"
            )
        return value

    return parse


def folder(text: str) -> Path:
    """The absolute path of a folder; `~` is the home of the user."""
    if not text.strip() or "\0" in text:
        raise ValueError("must name a folder, as in /srv/sluice")
    if "://" in text or not (text[0] in "/~._" or text[0].isalnum()):
        raise ValueError(
            "is not a folder as in /srv/sluice; begin with ./ if it is really called that"
        )
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ValueError("begins with ~ and a user who is not known here") from None


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that takes only these words, in capitals too."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return parse


def switch(text: str) -> bool:
    """Whether it is on."""
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        raise ValueError("must be 1, true, yes or on, or else 0, false, no or off")
    return value


def extensions(text: str) -> frozenset[str]:
    """File name extensions, separated by commas, without their dots."""
    words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
    if any(not _EXTENSION.fullmatch(word) for word in words) or (text.strip() and not words):
        raise ValueError("must be extensions separated by commas, as in mp4,mov; empty for all")
    return frozenset(word.removeprefix(".") for word in words)


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


def label(text: str) -> str:
    """A text for a button."""
    if not (text.strip() and text.isprintable() and len(text) <= 100):
        raise ValueError("must be a text of 1 to 100 characters, in one line")
    return text.strip()


def mail_sender(text: str) -> str:
    """The sender of mail, as in `Sluice <films@example.org>`."""
    address = _mail_address(text)
    if address is None or not (text.isprintable() and _MAIL_ADDRESS.fullmatch(address)):
        raise ValueError(
            "must be one e-mail address, as in films@example.org or Sluice <films@example.org>"
        )
    return text.strip()


def _mail_address(sender: str) -> str | None:
    """The address alone; None if there are several, or if something is wrong."""
    message = EmailMessage()
    try:
        message["From"] = sender
        header = message["From"]
        (address,) = header.addresses
        is_right = all(isinstance(found, ObsoleteHeaderDefect) for found in header.defects)
        return str(address.addr_spec) if is_right else None
    except Exception:  # noqa: BLE001 - Python's parser fails in many ways, as with TypeError.
        return None
