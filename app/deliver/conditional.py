"""Evaluates conditions and ranges in the headers of a GET (RFC 9110, sections 13 and 14). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from werkzeug.http import parse_date, parse_etags, parse_if_range_header

from app.core.numbers import parse_digits
from app.core.ranges import ByteRange, RangeSet

# ---- conditions ----------------------------------------------------------------------------------

# Evaluates conditional request headers (RFC 9110, section 13). Pure.


class Outcome(Enum):
    """The kind of response."""

    SEND = auto()
    NOT_MODIFIED = auto()
    PRECONDITION_FAILED = auto()


@dataclass(frozen=True, slots=True)
class Validators:
    """Identify one version of a file: a strong entity tag, and the time of publication."""

    etag: str
    last_modified: datetime


def evaluate(headers: Mapping[str, str], validators: Validators) -> Outcome:
    """The outcome for a GET or HEAD, in the order of precedence of RFC 9110, 13.2.2."""
    if "If-Match" in headers:
        if not parse_etags(headers["If-Match"]).contains(validators.etag):
            return Outcome.PRECONDITION_FAILED
    elif _is_newer(validators, headers.get("If-Unmodified-Since")) is True:
        return Outcome.PRECONDITION_FAILED
    if "If-None-Match" in headers:
        if parse_etags(headers["If-None-Match"]).contains_weak(validators.etag):
            return Outcome.NOT_MODIFIED
    elif _is_newer(validators, headers.get("If-Modified-Since")) is False:
        return Outcome.NOT_MODIFIED
    return Outcome.SEND


def range_applies(headers: Mapping[str, str], validators: Validators) -> bool:
    """Whether If-Range allows a part: both validators must match strongly."""
    if "If-Range" not in headers:
        return True
    condition = parse_if_range_header(headers["If-Range"])
    if condition.date is not None:
        return condition.date == validators.last_modified
    return condition.etag == validators.etag and not headers["If-Range"].startswith(("W/", "w/"))


def _is_newer(validators: Validators, header: str | None) -> bool | None:
    """Whether the file is newer than a date header says; None without a valid one."""
    date = parse_date(header)
    return None if date is None else validators.last_modified > date


# ---- ranges --------------------------------------------------------------------------------------

# Parses Range headers (RFC 9110, section 14). Pure.


MAX_RANGES = 100
"""Ranges in one header. With more of them the whole file is sent, which costs the server less; RFC
9110, 14.2 allows that. nginx has a `max_ranges`, Apache 200."""

_SPACE = " \t"


class RangeNotSatisfiable(Exception):
    """No byte of the file is in any of the ranges."""


def requested_spans(header: str | None, length: int) -> list[ByteRange]:
    """The spans a header selects of a file of `length` bytes; none for the whole file.

    They neither overlap nor touch, and keep the order of the header (RFC 9110, 15.3.7.2). As the
    RFC requires, a malformed header or another unit counts as no header, and ranges beyond the end
    are ignored. Raises `RangeNotSatisfiable` if all of them are.
    """
    unit, _, listed = (header or "").partition("=")
    if unit.strip(_SPACE).lower() != "bytes" or listed.count(",") >= MAX_RANGES:
        return []
    try:
        asked = [_span(item, length) for item in listed.split(",") if item.strip(_SPACE)]
    except ValueError:
        return []
    spans = [span for span in asked if span is not None]
    if asked and not spans:
        raise RangeNotSatisfiable
    if len(spans) < 2:
        return spans
    # Each range of the union takes the place of the first span that is part of it.
    union = tuple(RangeSet.of(spans))
    places = (bisect_right(union, span.start, key=lambda item: item.start) for span in spans)
    return [union[place - 1] for place in dict.fromkeys(places)]


def _span(text: str, length: int) -> ByteRange | None:
    """The bytes one range selects, or None beyond the file's end; raises `ValueError`."""
    first, dash, last = (part.strip(_SPACE) for part in text.partition("-"))
    if not dash:
        raise ValueError("not a range")
    if first:
        start, end = _number(first), _number(last) + 1 if last else length
        if last and _magnitude(last) < _magnitude(first):
            raise ValueError("the last byte comes before the first")
    else:
        start, end = length - min(_number(last), length), length
    return ByteRange(start, min(end, length)) if start < min(end, length) else None


def _magnitude(digits: str) -> tuple[int, str]:
    """A sort key for digits by their value, even beyond the largest number that is parsed."""
    significant = digits.lstrip("0")
    return len(significant), significant


def _number(text: str) -> int:
    number = parse_digits(text)
    if number is None:
        raise ValueError("not a number")
    return number


def content_range(span: ByteRange, length: int) -> str:
    """The Content-Range header of a 206; inclusive there."""
    return f"bytes {span.start}-{span.end - 1}/{length}"
