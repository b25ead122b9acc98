"""Which bytes a Range header asks for (RFC 9110, section 14). Pure."""

from __future__ import annotations

from werkzeug.http import parse_range_header

from app.domain.ranges import ByteRange


class RangeNotSatisfiable(Exception):
    """No byte of the file is in the range."""


def requested_span(header: str | None, length: int) -> ByteRange | None:
    """The span a header selects of a file of `length` bytes; None for the whole file.

    As the RFC wants, a header that is malformed, in another unit or (as it allows) of several
    ranges is as good as none. Raises `RangeNotSatisfiable` for one beyond the end.
    """
    parsed = parse_range_header(header)
    if parsed is None or parsed.units != "bytes" or len(parsed.ranges) != 1:
        return None
    start, end = parsed.ranges[0]
    if start < 0:
        if length == 0:
            raise RangeNotSatisfiable
        return ByteRange(max(0, length + start), length)
    if start >= length:
        raise RangeNotSatisfiable
    return ByteRange(start, length if end is None else min(end, length))


def content_range(span: ByteRange, length: int) -> str:
    """The Content-Range header of a 206; inclusive there."""
    return f"bytes {span.start}-{span.end - 1}/{length}"
