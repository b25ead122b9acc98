"""What administrators set for a project: how much it may hold, and how long it keeps videos."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.core.errors import InvalidField
from app.core.numbers import bytes_in_words, parse_bytes

MAX_QUOTA_BYTES = 1 << 60

MAX_VIDEO_SECONDS = 100 * 365 * 24 * 3600.0
"""A hundred years."""

DAY_SECONDS = 86_400

Limits = Mapping[str, float | None]
"""New values of a project's columns; None takes a limit away."""


def parse_limits(values: Mapping[str, object]) -> Limits:
    """The limits among the members of JSON; raises `InvalidField`."""
    return {name: _CHECKS[name](values[name]) for name in _CHECKS if name in values}


def limits_in_words(quota: str, keep_days: str) -> Limits:
    """The limits that a person enters, as "50 GB" and "30"; nothing takes a limit away."""
    return parse_limits(
        {
            "quota_bytes": _entered(quota, parse_bytes),
            "video_seconds": _entered(keep_days, lambda text: float(text) * DAY_SECONDS),
        }
    )


def words_of_limits(quota_bytes: int | None, video_seconds: float | None) -> dict[str, str]:
    """The fields from which `limits_in_words` reads the same limits again."""
    words = "" if quota_bytes is None else bytes_in_words(quota_bytes)
    if words and parse_bytes(words) != quota_bytes:
        words = str(quota_bytes)
    return {
        "quota": words,
        "keep_days": "" if video_seconds is None else f"{video_seconds / DAY_SECONDS:.10g}",
    }


def _entered(text: str, parse: Callable[[str], float]) -> object:
    """What is entered, or the text itself, which is then refused."""
    if not text.strip():
        return None
    try:
        return parse(text.strip())
    except ValueError:
        return text


def _quota(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_QUOTA_BYTES:
        raise InvalidField("A quota is a whole number of bytes, or null.", field="quota_bytes")
    return value


def _video_seconds(value: object) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < float(str(value)) <= MAX_VIDEO_SECONDS:
        raise InvalidField(
            "Videos are kept for a number of seconds, or null.", field="video_seconds"
        )
    return float(str(value))


_CHECKS: Mapping[str, Callable[[object], float | None]] = {
    "quota_bytes": _quota,
    "video_seconds": _video_seconds,
}
