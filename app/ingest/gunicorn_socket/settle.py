"""Decides, before an answer is sent, whether its connection is used for another request.

gunicorn 27 writes `Connection: keep-alive` whatever is left of the request's body, and looks only
after the answer: it reads at most 64 KiB, closes a connection it has just promised to keep, and
answers a body that proves malformed a second time, with 400.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.wsgi import Response

from app.domain.errors import UploadError
from app.ingest.copy import BodyLimits, discard
from app.ingest.gunicorn_socket.connection import timed_input
from app.ingest.gunicorn_socket.take_over import take_over
from app.ingest.source import SOURCE_KEY, BodySource, StreamSource

DRAIN_BYTES = 32 * 1024 * 1024
DRAIN_SECONDS = 5.0
"""How much of an unwanted body is read so that its connection can be used again: one chunk."""

_DRAIN_LIMITS = BodyLimits(idle_seconds=1.0, minimum_bytes_per_second=0.0)


def settle(environ: dict[str, Any], start_response: Any) -> None:
    """Read a short rest of the request's body, or make the answer say `Connection: close`.

    To be called between the application and the first byte of its answer. RFC 9112, section 9.6:
    a client that is not told sends its next request into a connection that is being closed.
    """
    if "gunicorn.socket" not in environ:
        _drain_elsewhere(environ)
        return
    response: Any = getattr(start_response, "__self__", None)
    if type(response) is not Response or response.should_close() or _is_read(response.req.body):
        return
    has_given_up = getattr(response, "status_code", None) == HTTPStatus.REQUEST_TIMEOUT
    if has_given_up or not _drain(environ) or not _is_read(response.req.body):
        response.force_close()


def _drain_elsewhere(environ: dict[str, Any]) -> None:
    """Werkzeug's server waits, before it closes a connection, for up to 10 MB of the body."""
    if environ.get("CONTENT_LENGTH", "").isdecimal():
        _drain(environ)


def _is_read(body: Body) -> bool:
    reader: Any = body.reader
    if body.failed:
        return False
    if isinstance(reader, LengthReader):
        return bool(reader.length == 0)
    return isinstance(reader, ChunkedReader) and reader.parser is None


def _drain(environ: dict[str, Any]) -> bool:
    """Whether the body could be read to its end within bounds."""
    source = _source(environ)
    if (source.remaining or 0) > DRAIN_BYTES:
        return False
    deadline = time.monotonic() + DRAIN_SECONDS

    def stop_when_late() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError

    try:
        discard(source, limits=_DRAIN_LIMITS, watch=stop_when_late)
        source.finish(stop_when_late)
    except (UploadError, TimeoutError):
        return False
    return True


def _source(environ: dict[str, Any]) -> BodySource:
    """The one the application has read from, or else one for a body that was not touched."""
    source: BodySource | None = environ.get(SOURCE_KEY) or take_over(environ)
    if source is None:
        length = environ.get("CONTENT_LENGTH")
        stream = timed_input(environ, environ["wsgi.input"], _DRAIN_LIMITS.idle_seconds)
        return StreamSource(stream, None if length is None else int(length))
    return source
