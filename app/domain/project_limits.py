"""What administrators set for a project: how much it may hold, and how long it keeps videos."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.domain.errors import InvalidField

MAX_QUOTA_BYTES = 1 << 60

MAX_VIDEO_SECONDS = 100 * 365 * 24 * 3600.0
"""A hundred years."""

Limits = Mapping[str, float | None]
"""New values of a project's columns; None takes a limit away."""


def parse_limits(values: Mapping[str, object]) -> Limits:
    """The limits among the members of JSON; raises `InvalidField`."""
    return {name: _CHECKS[name](values[name]) for name in _CHECKS if name in values}


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
