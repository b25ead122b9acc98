"""Reads the current request's body as a source, form or JSON, never with Werkzeug's form parser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import parse_qsl

from flask import request
from msgspec import ValidationError, convert

from app.core.access import counted_as
from app.core.errors import ChunkMismatch, InvalidRequest, TooLarge
from app.core.numbers import parse_bounded
from app.http.context import ViewContext
from app.ingest.bandwidth import paced
from app.ingest.connection import timed_input
from app.ingest.copy import BodyLimits, Pace
from app.ingest.form import FormReader
from app.ingest.gunicorn_socket import take_over
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
    source: BodySource | None = take_over(request.environ, expected_length)
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
        raise InvalidRequest("The body has characters that are no text.") from error


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
        words = f"{', '.join(others)}{',' * ('bool' in kinds)} or {last}" if others else last
        return f"The member {path} must be {words}."
    return f"The body is malformed: {message}."


# ---- chunk signs ---------------------------------------------------------------------------------

# Recognizes a chunk of a larger file by the names and numbers of the fields around it.
#
# For uploads in an unknown dialect. A chunk stored as a whole file is silent data loss: its client
# goes on to the next chunk and reports success. A whole file, on the other hand, may come with any
# fields a page likes, even `index` or `part`. So a single name counts only if it contains `chunk`;
# others must come in pairs, a position and a total, that do not fit a whole file.


_HEADER = re.compile(
    r"chunk|^content-range$|^uploader-"
    r"|^(x-)?(upload|file|part|blob|slice|segment)-?(offset|range|part|index|number)$"
)
"""Headers that no client sends with a whole file."""

_CHUNK = re.compile(r"chunk|^(blob|slice|segment|fragment)(index|number|count|s)$")

_POSITION = re.compile(
    r"^(current|upload|file|byte|data)?"
    r"((part|block|piece|slice|segment|blob|packet)(index|idx|number|num|no|nr)?"
    r"|index|idx|offset|position)$"
)

_TOTAL = re.compile(
    r"^total|total$|count$|(part|chunk|block|piece|slice|segment|packet)s$"
    r"|^(file|full|whole)?(size|length|bytes)$"
)

_STARTS, _ENDS = {"start", "from", "rangestart", "bytestart"}, {"end", "to", "rangeend", "byteend"}


_NOTHING = {"", "false", "no", "off", "null", "none", "undefined"}


def chunk_signs(fields: Mapping[str, str], headers: Iterable[str], length: int | None) -> list[str]:
    """Names that show that a file of `length` bytes is a chunk; empty if it may be whole.

    `length` is None if the form has several files.
    """
    told = [name for name in headers if _HEADER.search(name.lower())]
    plain = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in fields}
    parsed = {name: parse_bounded(value) for name, value in fields.items()}
    numbers = {name: number for name, number in parsed.items() if number is not None}
    said = [name for name in fields if fields[name].strip().lower() not in _NOTHING]
    chunks = [name for name in said if _CHUNK.search(plain[name])]
    totals = [name for name in numbers if _TOTAL.search(plain[name])]
    if told or chunks:
        sizes = [name for name in totals if name not in chunks or "size" not in plain[name]]
        is_whole = not told and _are_of_whole([numbers[name] for name in sizes], length)
        return [] if is_whole else [*told, *chunks]
    positions = [name for name in numbers if _POSITION.match(plain[name])]
    if positions and totals and not _are_of_whole([numbers[name] for name in totals], length):
        return [*positions, *totals]
    return _span_signs(plain, numbers, length)


def _are_of_whole(totals: list[int], length: int | None) -> bool:
    """Whether there are totals, and each is 1 or the length of this file."""
    return bool(totals) and all(total in {1, length} for total in totals)


def _span_signs(
    plain: Mapping[str, str], numbers: Mapping[str, int], length: int | None
) -> list[str]:
    """Names of a start and an end exactly one file length apart, unlike those of a video clip."""
    for start in (name for name in numbers if plain[name] in _STARTS):
        for end in (name for name in numbers if plain[name] in _ENDS):
            if length is not None and numbers[end] - numbers[start] in {length, length - 1}:
                return [start, end]
    return []
