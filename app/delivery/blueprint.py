"""GET and HEAD /media/{id}."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import quote

from flask import Blueprint, request
from werkzeug.exceptions import PreconditionFailed, RequestedRangeNotSatisfiable
from werkzeug.http import http_date, quote_etag
from werkzeug.wrappers import Response

from app.delivery.accel import ACCEL_HEADER, hand_over, nginx_decides_alike
from app.delivery.byteranges import Layout, send_parts
from app.delivery.conditional import Outcome, Validators, evaluate, range_applies
from app.delivery.http_range import RangeNotSatisfiable, content_range, requested_spans
from app.delivery.sendfile import send_span
from app.domain.media_type import is_playable, media_type
from app.domain.ranges import ByteRange
from app.domain.upload import Upload, parse_upload_id
from app.http.context import current_owner, current_services, note_upload
from app.http.proxy import is_forwarded

blueprint = Blueprint("delivery", __name__)

PLAYER_ONLY = "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'"
"""For a film that is opened by itself: the browser's own player and its style, and nothing else."""

SANDBOX = "default-src 'none'; sandbox"
"""For all other files, should a browser show one after all. A film would not play in it: a
sandboxed page has no origin of its own to load the film from."""


@blueprint.get("/media/<upload_id>")
def media(upload_id: str) -> Response:
    """The bytes of a video, or the parts that a Range header asks for."""
    library, owner = current_services().library, current_owner()
    video = note_upload(library.get(owner, parse_upload_id(upload_id)))
    validators = _validators(video)
    headers = dict(request.headers)
    outcome = evaluate(headers, validators)
    if outcome is Outcome.NOT_MODIFIED:
        return _with_headers(Response(status=304), video, validators)
    if outcome is Outcome.PRECONDITION_FAILED:
        raise PreconditionFailed("The file is not the one the request is about.")
    try:
        spans = _requested_spans(headers, video, validators)
    except RangeNotSatisfiable as error:
        raise RequestedRangeNotSatisfiable(video.known_length) from error
    return _with_headers(_send(video, spans), video, validators)


def _requested_spans(
    headers: Mapping[str, str], video: Upload, validators: Validators
) -> list[ByteRange]:
    if request.method != "GET" or not range_applies(headers, validators):
        return []
    return requested_spans(headers.get("Range"), video.known_length)


def _send(video: Upload, spans: list[ByteRange]) -> Response:
    if request.method == "HEAD":
        response = Response(content_type=media_type(video.filename))
        response.content_length = video.known_length
        return response
    if _is_nginx_to_send(spans):
        return _leave_to_nginx(video)
    return _send_parts(video, spans) if len(spans) > 1 else _send_piece(video, spans)


def _is_nginx_to_send(spans: list[ByteRange]) -> bool:
    """Whether there is one that can; a client that comes past it gets the bytes from here."""
    has_location = current_services().settings.accel_redirect != ""
    is_theirs = has_location and is_forwarded(request.environ)
    return is_theirs and nginx_decides_alike(request.headers, has_range=bool(spans))


def _leave_to_nginx(video: Upload) -> Response:
    current_services().library.hand_over(video)
    response = hand_over(current_services().settings.accel_redirect, video.id)
    response.content_type = media_type(video.filename)
    return response


def _send_parts(video: Upload, spans: list[ByteRange]) -> Response:
    file = current_services().library.open(video, spans[0])
    layout = Layout(spans, video.known_length, media_type(video.filename))
    return send_parts(request.environ, file, layout)


def _send_piece(video: Upload, spans: list[ByteRange]) -> Response:
    span = spans[0] if spans else ByteRange(0, video.known_length)
    file = current_services().library.open(video, span)
    response = send_span(request.environ, file, span)
    response.content_type = media_type(video.filename)
    if spans:
        response.status_code = 206
        response.headers["Content-Range"] = content_range(span, video.known_length)
    return response


def _validators(video: Upload) -> Validators:
    """The bytes under an id never change, so the id itself is the strongest tag there is."""
    published_at = video.published_at or video.active_at
    return Validators(video.id, published_at.replace(microsecond=0))


def _with_headers(response: Response, video: Upload, validators: Validators) -> Response:
    can_play = is_playable(video.filename)
    is_attachment = "download" in request.args or not can_play
    if ACCEL_HEADER not in response.headers:  # nginx would add its own to it.
        response.headers["Accept-Ranges"] = "bytes"
    response.headers.extend(
        {
            "ETag": quote_etag(validators.etag),
            "Last-Modified": http_date(validators.last_modified),
            "Cache-Control": "private, no-cache",
            "Content-Disposition": content_disposition(video.filename, is_attachment=is_attachment),
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": PLAYER_ONLY if can_play else SANDBOX,
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    return response


def content_disposition(filename: str, *, is_attachment: bool) -> str:
    """The header for a name with any characters: plain for old clients, RFC 8187 for the rest."""
    name = PurePosixPath(filename).name
    plain = name.encode("ascii", "replace").decode().translate(_UNQUOTABLE)
    kind = "attachment" if is_attachment else "inline"
    header = f'{kind}; filename="{plain}"'
    if plain != name:
        header += f"; filename*=UTF-8''{quote(name, safe='')}"
    return header


_UNQUOTABLE = str.maketrans({'"': "'", "\\": "_", "%": "_"})
