"""Formats and parses times for programs (ISO 8601)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.core.errors import InvalidRequest

LONGEST = timedelta(days=100 * 365)
"""Maximum lifetime, so that adding it to a time always gives a valid date."""


def instant(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and a Z."""
    utc = moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def optional_instant(moment: datetime | None) -> str | None:
    """Like `instant`; None for None."""
    return None if moment is None else instant(moment)


def parse_instant(text: str) -> datetime | None:
    """A time in ISO 8601, in UTC without a zone; a date means its start. None if malformed."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def parse_expiry(value: object, now: datetime) -> datetime | None:
    """Parse an expiry: seconds from now, or a time in ISO 8601, in UTC if it has no zone.

    None for None. Raises `InvalidRequest` for anything else, and for a time that has passed.
    """
    if value is None:
        return None
    expires = _after(value, now) if not isinstance(value, str) else parse_instant(value)
    if expires is None or not now < expires <= now + LONGEST:
        raise InvalidRequest("The expiry must be seconds from now, or a time to come in ISO 8601.")
    return expires


def _after(value: object, now: datetime) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return now + timedelta(seconds=value) if 0 < value <= LONGEST.total_seconds() else None
