"""The body of the request at hand, as a source. Never through Werkzeug's form parser."""

from __future__ import annotations

import time
from typing import cast

from flask import Response, after_this_request, g, request

from app.domain.errors import ChunkMismatch, TooLarge, UploadError
from app.ingest.copy import BodyLimits, Pace, discard
from app.ingest.form import FormReader
from app.ingest.gunicorn_socket.connection import linger, timed_input
from app.ingest.gunicorn_socket.take_over import take_over
from app.ingest.multipart import parse_boundary
from app.ingest.source import BodySource, StreamSource
from app.wire.context import current_services

DRAIN_BYTES = 32 * 1024 * 1024
DRAIN_SECONDS = 5.0
"""How much of an unwanted body is read so that its connection can be used again: one chunk."""

SMALL_BODY_LIMITS = BodyLimits(idle_seconds=10.0, minimum_bytes_per_second=1024.0)
"""For bodies that fit into one packet or a few."""

_DRAIN_LIMITS = BodyLimits(idle_seconds=1.0, minimum_bytes_per_second=0.0)


def open_body(expected_length: int | None = None) -> BodySource:
    """The request's body; the same source however often it is asked for.

    `expected_length` is what the request says elsewhere; `ChunkMismatch` where the body has
    another length, before any of it is read.
    """
    if "body" not in g:
        length = request.content_length
        if None not in {length, expected_length} and length != expected_length:
            raise ChunkMismatch(
                f"The body has {length} bytes where the chunk should have {expected_length}."
            )
        g.body = take_over(request.environ, expected_length) or _read_stream(
            length, expected_length
        )
    return cast(BodySource, g.body)


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


def drain_body() -> None:
    """Read what is left of the body, within bounds, before an error is answered.

    Where that is too much, its sender is listened to behind the answer for a while.
    """
    if not request.content_length and "Transfer-Encoding" not in request.headers:
        return
    after_this_request(_linger_behind)
    deadline = time.monotonic() + DRAIN_SECONDS

    def stop_when_late() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError

    try:
        source = open_body()
        if (source.remaining or 0) <= DRAIN_BYTES:
            discard(source, limits=_DRAIN_LIMITS, watch=stop_when_late)
    except (UploadError, TimeoutError):
        pass


def _linger_behind(response: Response) -> Response:
    environ = request.environ
    response.call_on_close(lambda: linger(environ))
    return response
