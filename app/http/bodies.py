"""The body of the current request, never through Werkzeug's form parser: as a source, as JSON."""

from __future__ import annotations

import json
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

from flask import request

from app.core.access import counted_as
from app.core.errors import ChunkMismatch, InvalidRequest, TooLarge
from app.http.context import current_caller, current_services
from app.ingest.copy import BodyLimits, Pace
from app.ingest.form import FormReader
from app.ingest.gunicorn_socket.connection import timed_input
from app.ingest.gunicorn_socket.take_over import take_over
from app.ingest.multipart import parse_boundary
from app.ingest.paced import paced
from app.ingest.source import SOURCE_KEY, BodySource, StreamSource

SMALL_BODY_LIMITS = BodyLimits(idle_seconds=10.0, minimum_bytes_per_second=1024.0)
"""For bodies that fit into a few packets."""

MAX_JSON_BYTES = 64 * 1024
"""Far more than any API request needs; a larger body is refused with 413, unread."""

MAX_FORM_BYTES = 64 * 1024
MAX_FORM_FIELDS = 100
"""Of a page's form without files; a larger one is refused."""

_REQUIRED = object()

T = TypeVar("T")


def open_body(expected_length: int | None = None) -> BodySource:
    """The request's body; every call returns the same source.

    `expected_length` is the length stated elsewhere in the request; raises `ChunkMismatch` before
    reading if the body has another one.
    """
    if SOURCE_KEY not in request.environ:
        length = request.content_length
        if None not in {length, expected_length} and length != expected_length:
            raise ChunkMismatch(
                f"The body has {length} bytes, but the chunk should have {expected_length}."
            )
        source = take_over(request.environ, expected_length)
        request.environ[SOURCE_KEY] = _paced(source or _read_stream(length, expected_length))
    return cast(BodySource, request.environ[SOURCE_KEY])


def _paced(source: BodySource) -> BodySource:
    """The body itself where the line has no limits."""
    line = current_services().line
    if line is None:
        return source
    address = request.environ.get("REMOTE_ADDR", "")
    return paced(source, line, counted_as(current_caller(), address))


def open_form() -> FormReader:
    """The request's multipart body; raises `MalformedBody` without a usable boundary."""
    settings = current_services().settings
    limits = BodyLimits(settings.body_idle_seconds, settings.min_bytes_per_second)
    return FormReader(open_body(), parse_boundary(request.content_type or ""), limits)


def _read_stream(length: int | None, expected_length: int | None) -> StreamSource:
    idle_seconds = current_services().settings.body_idle_seconds
    stream = timed_input(request.environ, request.stream, idle_seconds)
    is_chunked = request.headers.get("Transfer-Encoding", "").lower() == "chunked"
    if is_chunked:
        return StreamSource(stream, expected_length, must_end=True)
    return StreamSource(stream, length or 0)


def read_small_body(limit: int) -> bytes:
    """The whole body of at most `limit` bytes; raises `TooLarge` and what a source raises."""
    source, pace = open_body(), Pace(SMALL_BODY_LIMITS)
    buffer, filled = memoryview(bytearray(limit + 1)), 0
    while (count := source.readinto(buffer[filled:])) != 0:
        pace.saw(count or 0)
        filled += count or 0
        if filled > limit:
            raise TooLarge(f"The body is over {limit} bytes.")
    return bytes(buffer[:filled])


def form_fields(limit: int = MAX_FORM_BYTES) -> dict[str, str]:
    """The fields of a form without files; raises `InvalidRequest` or `TooLarge`.

    Of a field that is there several times, the last one counts.
    """
    if request.mimetype != "application/x-www-form-urlencoded":
        raise InvalidRequest("The body is not a form (application/x-www-form-urlencoded).")
    text = read_small_body(limit).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
    except ValueError as error:
        raise InvalidRequest("The form has too many fields.") from error


def json_object() -> dict[str, Any]:
    """The request's body as an object; raises `InvalidRequest` or `TooLarge`."""
    if (request.content_length or 0) > MAX_JSON_BYTES:
        raise TooLarge(f"The JSON body is over {MAX_JSON_BYTES} bytes.")
    text = read_small_body(MAX_JSON_BYTES)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body is not JSON.") from error
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object.")
    return value


def member(body: dict[str, Any], *names: str, kind: type[T], default: Any = _REQUIRED) -> T:
    """The first of `names` present in the object; raises `InvalidRequest` unless of `kind`."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number: 3.0 is 3.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidRequest(f"The member {name} must be {_KIND_NAMES[kind]}.")
        return value
    if default is _REQUIRED:
        raise InvalidRequest(f"The member {names[0]} is missing.")
    return default  # type: ignore[no-any-return]


_KIND_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
