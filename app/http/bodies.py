"""Reads the current request's body as a source, form or JSON, never with Werkzeug's form parser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import parse_qsl

from flask import request
from msgspec import ValidationError, convert

from app.core.access import counted_as
from app.core.errors import ChunkMismatch, InvalidRequest, TooLarge
from app.http.context import ViewContext
from app.ingest.bandwidth import paced
from app.ingest.connection import timed_input
from app.ingest.copy import BodyLimits, Pace
from app.ingest.form import FormReader
from app.ingest.gunicorn_socket import gunicorn_source
from app.ingest.multipart import parse_boundary
from app.ingest.source import SOURCE_KEY, BodySource, StreamSource

SMALL_BODY_LIMITS = BodyLimits(idle_seconds=10.0, minimum_bytes_per_second=1024.0)
"""Limits for bodies that fit into a few packets."""

MAX_JSON_BYTES = 64 * 1024
"""Far more than any API request needs; a larger body is refused with 413, unread."""

MAX_FORM_BYTES = 64 * 1024
MAX_FORM_FIELDS = 100
"""Maximum fields of a page's form without files; a larger form is refused."""

BODY = "body"
"""The attribute of a view with the type of its JSON body."""

Body = TypeVar("Body")
P = ParamSpec("P")
R = TypeVar("R")


def open_body(ctx: ViewContext, expected_length: int | None = None) -> BodySource:
    """The request's body; every call returns the same source.

    `expected_length` is the length stated elsewhere in the request; raises `ChunkMismatch` before
    reading if the body has another one.
    """
    if SOURCE_KEY in request.environ:
        return cast(BodySource, request.environ[SOURCE_KEY])
    length = request.content_length
    if None not in {length, expected_length} and length != expected_length:
        raise ChunkMismatch(
            f"The body has {length} bytes, but the chunk should have {expected_length}."
        )
    source: BodySource | None = gunicorn_source(request.environ, expected_length)
    if source is None:
        stream = timed_input(request.environ, request.stream, ctx.settings.body_idle_seconds)
        length = body_length()
        is_chunked = length is None
        source = StreamSource(
            stream, expected_length if is_chunked else length, must_end=is_chunked
        )
    if ctx.services.line is not None:
        address = request.environ.get("REMOTE_ADDR", "")
        source = paced(source, ctx.services.line, counted_as(ctx.caller, address))
    request.environ[SOURCE_KEY] = source
    return source


def open_form(ctx: ViewContext) -> FormReader:
    """The request's multipart body; raises `MalformedBody` without a usable boundary."""
    limits = BodyLimits.of(ctx.settings)
    return FormReader(open_body(ctx), parse_boundary(request.content_type or ""), limits)


def body_length() -> int | None:
    """Length of the body: None if chunked, 0 without either header (RFC 9112, section 6.3)."""
    is_chunked = request.headers.get("Transfer-Encoding", "").lower() == "chunked"
    return None if is_chunked else request.content_length or 0


def read_small_body(ctx: ViewContext, limit: int) -> bytes:
    """The whole body of at most `limit` bytes; raises `TooLarge` and what a source raises."""
    source, pace = open_body(ctx), Pace(SMALL_BODY_LIMITS)
    buffer, filled = memoryview(bytearray(limit + 1)), 0
    while (count := source.readinto(buffer[filled:])) != 0:
        pace.saw(count or 0)
        filled += count or 0
        if filled > limit:
            raise TooLarge(f"The body is over {limit} bytes.")
    return bytes(buffer[:filled])


def form_fields(ctx: ViewContext, limit: int = MAX_FORM_BYTES) -> dict[str, str]:
    """The fields of a form without files; raises `InvalidRequest` or `TooLarge`.

    If a field is repeated, its last value counts.
    """
    if request.mimetype != "application/x-www-form-urlencoded":
        raise InvalidRequest("The body is not a form (application/x-www-form-urlencoded).")
    text = read_small_body(ctx, limit).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
    except ValueError as error:
        raise InvalidRequest("The form has too many fields.") from error


# ---- JSON ----------------------------------------------------------------------------------------


def takes(
    kind: type[Body], aliases: Mapping[str, str] = {}
) -> Callable[
    [Callable[Concatenate[ViewContext, Body, P], R]], Callable[Concatenate[ViewContext, P], R]
]:
    """Parses the request's JSON body for a view, which gets it after the context.

    `aliases` are other names of members, each with the name in `kind`. A view that must find
    something before it reads the body calls `json_body` instead: 404 comes before 400.
    """

    def declare(
        view: Callable[Concatenate[ViewContext, Body, P], R],
    ) -> Callable[Concatenate[ViewContext, P], R]:
        @wraps(view)
        def with_body(ctx: ViewContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return view(ctx, json_body(ctx, kind, aliases), *args, **kwargs)

        setattr(with_body, BODY, kind)
        return with_body

    return declare


def json_body(ctx: ViewContext, kind: type[Body], aliases: Mapping[str, str] = {}) -> Body:
    """The request's body, an object that fits `kind`; raises `InvalidRequest` or `TooLarge`.

    A member that `kind` does not have is ignored.
    """
    if (request.content_length or 0) > MAX_JSON_BYTES:
        raise TooLarge(f"The JSON body is over {MAX_JSON_BYTES} bytes.")
    text = read_small_body(ctx, MAX_JSON_BYTES)
    try:
        value = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body is not JSON.") from error
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object.")
    for alias, name in aliases.items():
        if value.get(name) is None and alias in value:
            value[name] = value[alias]
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise InvalidRequest(_in_words(str(error))) from error
    except UnicodeEncodeError as error:  # JSON can escape half of a character, a surrogate.
        raise InvalidRequest("The body has characters that are not text.") from error


def _number(text: str) -> float:
    """JSON has one kind of number: 3.0 is 3."""
    number = float(text)
    return int(number) if number.is_integer() else number


_MISSING = re.compile(r"Object missing required field `([^`]+)`(?: - at `\$\.?([^`]+)`)?")
_EXPECTED = re.compile(r"Expected `([^`]+)`, got `[^`]+` - at `\$\.?([^`]+)`")
"""Messages of msgspec, with the path of the member."""

_KIND_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def _in_words(message: str) -> str:
    if found := _MISSING.fullmatch(message):
        name, parent = found.groups()
        return f"The member {f'{parent}.' if parent else ''}{name} is missing."
    if found := _EXPECTED.fullmatch(message):
        kinds, path = found.groups()
        *others, last = [_KIND_NAMES.get(kind, kind) for kind in kinds.split(" | ")]
        joint = ", or " if "bool" in kinds else " or "  # "true or false" has an "or" of its own.
        words = f"{', '.join(others)}{joint}{last}" if others else last
        return f"The member {path} must be {words}."
    return f"The body is malformed: {message}."
