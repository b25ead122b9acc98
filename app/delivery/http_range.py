"""Which bytes a Range header asks for (RFC 9110, section 14). Pure."""

from __future__ import annotations

import re
from bisect import bisect_right

from app.domain.ranges import ByteRange, RangeSet

MAX_RANGES = 100
"""Ranges in one header. One with more is answered with the whole file, which costs the server less
than as many parts; RFC 9110, 14.2 lets it. nginx has a `max_ranges`, Apache 200."""

_SPACE = " \t"
_DIGITS = re.compile("[0-9]+")


class RangeNotSatisfiable(Exception):
    """No byte of the file is in any of the ranges."""


def requested_spans(header: str | None, length: int) -> list[ByteRange]:
    """The spans a header selects of a file of `length` bytes; none for the whole file.

    They neither overlap nor touch, and stand in the order of the header, as RFC 9110, 15.3.7.2
    would have the parts of the answer. As the RFC wants, a header that is malformed or in another
    unit is as good as none, and ranges beyond the end do not count. Raises `RangeNotSatisfiable`
    where all are.
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
    return _coalesced(spans) if len(spans) > 1 else spans


def _span(text: str, length: int) -> ByteRange | None:
    """The bytes one range selects, or None where the file has none; raises `ValueError`."""
    first, dash, last = (part.strip(_SPACE) for part in text.partition("-"))
    if not dash:
        raise ValueError("not a range")
    if first:
        start, end = _number(first), _number(last) + 1 if last else length
        if last and end <= start:
            raise ValueError("the last byte comes before the first")
    else:
        start, end = length - min(_number(last), length), length
    return ByteRange(start, min(end, length)) if start < min(end, length) else None


def _number(text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ValueError("not a number")
    return int(text)


def _coalesced(spans: list[ByteRange]) -> list[ByteRange]:
    """The union of `spans`; each range of it stands where the first that went into it did."""
    union = tuple(RangeSet.of(spans))
    places = (bisect_right(union, span.start, key=lambda item: item.start) for span in spans)
    return [union[place - 1] for place in dict.fromkeys(places)]


def content_range(span: ByteRange, length: int) -> str:
    """The Content-Range header of a 206; inclusive there."""
    return f"bytes {span.start}-{span.end - 1}/{length}"
