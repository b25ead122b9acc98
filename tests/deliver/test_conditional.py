"""Conditional headers in the order of precedence of RFC 9110, 13.2.2."""

from datetime import UTC, datetime

import pytest

from app.deliver.conditional import Outcome, Validators, evaluate, range_applies

FILE = Validators("tag", datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))

SAME = "Wed, 02 Jan 2030 03:04:05 GMT"
BEFORE = "Wed, 02 Jan 2030 03:04:04 GMT"
AFTER = "Wed, 02 Jan 2030 03:04:06 GMT"

SEND, NOT_MODIFIED, FAILED = Outcome.SEND, Outcome.NOT_MODIFIED, Outcome.PRECONDITION_FAILED


@pytest.mark.parametrize(
    ("headers", "outcome"),
    [
        ({}, SEND),
        ({"If-None-Match": '"tag"'}, NOT_MODIFIED),
        ({"If-None-Match": 'W/"tag"'}, NOT_MODIFIED),
        ({"If-None-Match": '"a", "tag", "b"'}, NOT_MODIFIED),
        ({"If-None-Match": "*"}, NOT_MODIFIED),
        ({"If-None-Match": '"other"'}, SEND),
        ({"If-None-Match": '"TAG"'}, SEND),
        ({"If-None-Match": ""}, SEND),
        ({"If-Modified-Since": SAME}, NOT_MODIFIED),
        ({"If-Modified-Since": AFTER}, NOT_MODIFIED),
        ({"If-Modified-Since": BEFORE}, SEND),
        ({"If-Modified-Since": "yesterday"}, SEND),
        ({"If-Match": '"tag"'}, SEND),
        ({"If-Match": '"a", "tag"'}, SEND),
        ({"If-Match": "*"}, SEND),
        ({"If-Match": '"other"'}, FAILED),
        ({"If-Match": 'W/"tag"'}, FAILED),
        ({"If-Match": ""}, FAILED),
        ({"If-Unmodified-Since": SAME}, SEND),
        ({"If-Unmodified-Since": AFTER}, SEND),
        ({"If-Unmodified-Since": BEFORE}, FAILED),
        ({"If-Unmodified-Since": "yesterday"}, SEND),
    ],
)
def test_one_condition(headers: dict[str, str], outcome: Outcome) -> None:
    assert evaluate(headers, FILE) is outcome


@pytest.mark.parametrize(
    ("headers", "outcome"),
    [
        ({"If-None-Match": '"other"', "If-Modified-Since": AFTER}, SEND),
        ({"If-None-Match": '"tag"', "If-Modified-Since": BEFORE}, NOT_MODIFIED),
        ({"If-Match": '"tag"', "If-Unmodified-Since": BEFORE}, SEND),
        ({"If-Match": '"other"', "If-None-Match": '"tag"'}, FAILED),
        ({"If-Match": '"tag"', "If-None-Match": '"tag"'}, NOT_MODIFIED),
        ({"If-Match": '"tag"', "If-Modified-Since": SAME}, NOT_MODIFIED),
        ({"If-Unmodified-Since": BEFORE, "If-None-Match": '"tag"'}, FAILED),
        ({"If-Unmodified-Since": AFTER, "If-Modified-Since": AFTER}, NOT_MODIFIED),
    ],
)
def test_several_conditions_follow_their_precedence(
    headers: dict[str, str], outcome: Outcome
) -> None:
    assert evaluate(headers, FILE) is outcome


@pytest.mark.parametrize(
    ("condition", "applies"),
    [
        ('"tag"', True),
        (SAME, True),
        ("Wednesday, 02-Jan-30 03:04:05 GMT", True),
        ('W/"tag"', False),
        ('w/"tag"', False),
        ('"other"', False),
        (BEFORE, False),
        (AFTER, False),
        ("yesterday", False),
        ("", False),
        ("*", False),
    ],
)
def test_if_range_allows_a_part_of_exactly_this_version_only(condition: str, applies: bool) -> None:
    assert range_applies({"If-Range": condition}, FILE) is applies


def test_without_if_range_a_part_is_allowed() -> None:
    assert range_applies({}, FILE)
