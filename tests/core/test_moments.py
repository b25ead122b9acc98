"""Times as programs write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.core.errors import InvalidRequest
from app.core.moments import instant, parse_expiry

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (90, NOW + timedelta(seconds=90)),
        (0.5, NOW + timedelta(seconds=0.5)),
        ("2026-11-23", NOW + timedelta(hours=12)),
        ("2026-11-22T13:00:00Z", NOW + timedelta(hours=1)),
        ("2026-11-22T14:00:00+01:00", NOW + timedelta(hours=1)),
    ],
)
def test_an_expiry_is_seconds_or_a_time(value: object, expected: datetime | None) -> None:
    assert parse_expiry(value, NOW) == expected


@pytest.mark.parametrize(
    "value",
    [0, -1, True, 1e300, float("nan"), [], "soon", "2026-11-22", "9999-12-31", "0001-01-01T00+23"],
    ids=repr,
)
def test_other_expiries_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest):
        parse_expiry(value, NOW)


def test_times_are_printed_in_utc() -> None:
    assert (
        instant(datetime.fromisoformat("2026-11-22T14:00:00+01:00")) == "2026-11-22T13:00:00.000Z"
    )
