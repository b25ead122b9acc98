"""The answer to GET and HEAD of anything stored: conditions, ranges, the headers of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from flask import request
from werkzeug.exceptions import PreconditionFailed, RequestedRangeNotSatisfiable
from werkzeug.wrappers import Response

from app.core.ranges import ByteRange
from app.deliver.conditional import Outcome, Validators, evaluate, range_applies
from app.deliver.http_range import RangeNotSatisfiable, content_range, requested_spans

_CONDITIONS = {
    f"HTTP_{name.upper().replace('-', '_')}": name
    for name in (
        *("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"),
        "Range",
    )
}
"""Request headers that decide what is sent, by their keys in the WSGI environment."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Something that can be sent: its length in bytes, and what its headers say."""

    length: int
    content_type: str
    validators: Validators
    headers: Mapping[str, str]
    """All other headers, for every status."""


Send = Callable[[list[ByteRange], dict[str, str]], Response]
"""Answers a GET with the spans asked for, none for everything, and with these headers."""


def answer(stored: Stored, send: Send) -> Response:
    """The response that the request's method and conditional headers ask for."""
    environ = request.environ
    conditions = {name: environ[key] for key, name in _CONDITIONS.items() if key in environ}
    outcome = evaluate(conditions, stored.validators)
    if outcome is Outcome.NOT_MODIFIED:
        return Response(status=304, headers=stored.headers)
    if outcome is Outcome.PRECONDITION_FAILED:
        raise PreconditionFailed("The file is not the one the request is about.")
    headers = {**stored.headers, "Content-Type": stored.content_type}
    if request.method == "HEAD":
        return Response(headers={**headers, "Content-Length": str(stored.length)})
    return send(_requested_spans(conditions, stored), headers)


def _requested_spans(conditions: Mapping[str, str], stored: Stored) -> list[ByteRange]:
    if request.method != "GET" or not range_applies(conditions, stored.validators):
        return []
    try:
        return requested_spans(conditions.get("Range"), stored.length)
    except RangeNotSatisfiable as error:
        raise RequestedRangeNotSatisfiable(stored.length) from error


def send_span(
    spans: list[ByteRange],
    length: int,
    headers: dict[str, str],
    body: Callable[[ByteRange], Iterable[bytes]],
) -> Response:
    """One span, or all `length` bytes if there are none, from `body`."""
    span = spans[0] if spans else ByteRange(0, length)
    headers["Content-Length"] = str(span.length)
    if spans:
        headers["Content-Range"] = content_range(span, length)
    status = 206 if spans else 200
    return Response(body(span), status=status, headers=headers, direct_passthrough=True)
