"""The digest that a client sends with a body: in a header, or in a trailer after it."""

from __future__ import annotations

from flask import request

from app.core.errors import InvalidRequest
from app.http.proxy import came_directly
from app.ingest.gunicorn_socket.take_over import trailers
from app.ingest.source import BodySource, DigestSource, TrailingDigestSource
from app.protocols.tus.headers import parse_checksum

HEADER = "Upload-Checksum"


def checked(source: BodySource) -> BodySource:
    """`source`, verified at its end against the client's digest if there is one."""
    header = request.headers.get(HEADER)
    if header is not None:
        return DigestSource(source, *parse_checksum(header))
    if source.remaining is None and _is_announced():
        return TrailingDigestSource(source, _digest_in_trailer)
    return source


def _is_announced() -> bool:
    """Whether a digest will follow; only chunked bodies have trailers (RFC 9110, 6.5.1)."""
    announced = request.headers.get("Trailer", "").lower().split(",")
    return HEADER.lower() in (name.strip() for name in announced)


def can_see_trailers() -> bool:
    """Whether the trailers of a chunked request would reach this program."""
    return came_directly(request.environ) and trailers(request.environ) is not None


def _digest_in_trailer() -> tuple[str, bytes]:
    for name, value in trailers(request.environ) or ():
        if name.lower() == HEADER.lower():
            return parse_checksum(value)
    raise InvalidRequest("The announced Upload-Checksum trailer is missing.")
