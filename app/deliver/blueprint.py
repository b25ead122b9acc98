"""GET and HEAD /media/{id}."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import quote

from flask import Blueprint, request
from werkzeug.http import http_date, quote_etag
from werkzeug.wrappers import Response

from app.core.access import Action, scope_of
from app.core.errors import NotAllowed
from app.core.media_type import OPAQUE
from app.core.ranges import ByteRange
from app.core.upload import Upload, parse_upload_id
from app.deliver.answers import Stored, answer, send_span
from app.deliver.byteranges import Layout, parts_body
from app.deliver.conditional import Validators
from app.deliver.elsewhere import (
    ACCEL_HEADER,
    BUCKET_HEADER,
    follows_redirects,
    is_decided_alike,
)
from app.deliver.sendfile import span_body
from app.http.access_rules import requires
from app.http.context import current_caller, current_scope, current_services, note_upload
from app.http.documents import plays_original
from app.http.proxy import is_forwarded

blueprint = Blueprint("delivery", __name__)

PLAYER_ONLY = "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'"
"""For a film opened directly: the browser's own player with its style, and nothing else."""

SANDBOX = "default-src 'none'; sandbox"
"""For all other files, in case a browser shows one. A film would not play with it: a sandboxed page
has no origin to load the film from."""


@blueprint.get("/media/<upload_id>")
@requires(Action.WATCH)
def media(upload_id: str) -> Response:
    """The bytes of a video, or the parts that a Range header asks for."""
    is_download = _is_download()
    caller = current_caller()
    scope = scope_of(caller, Action.DOWNLOAD) if is_download else current_scope()
    video = note_upload(current_services().library.get(scope, parse_upload_id(upload_id)))
    if not caller.can_download:
        _require_player_needs(video)
    content_type = video.content_type
    validators = _validators(video, content_type)
    headers = _file_headers(
        video.filename, validators, can_play=content_type != OPAQUE, is_download=is_download
    )
    stored = Stored(video.known_length, content_type, validators, headers)
    return answer(stored, lambda spans, headers: _send(video, spans, headers))


def _is_download() -> bool:
    return bool(request.query_string) and "download" in request.args


def _require_player_needs(video: Upload) -> None:
    (playback,) = current_services().media.library.playbacks([video])
    if not plays_original(video, playback):
        raise NotAllowed("This video is only to be watched.")


def _validators(video: Upload, content_type: str) -> Validators:
    """The bytes under an id never change; what they are served as changes if a new name says so.

    A browser keeps the old type along with its copy after a 304, so the tag names the type. Any
    other new name leaves the tag as it is, and interrupted downloads go on.
    """
    published_at = video.published_at or video.active_at
    return Validators(f"{video.id}-{content_type}", published_at.replace(microsecond=0))


def _send(video: Upload, spans: list[ByteRange], headers: dict[str, str]) -> Response:
    if is_decided_alike(request.headers, has_range=bool(spans)):
        settings = current_services().settings
        if settings.accel_redirect and is_forwarded(request.environ):
            return _leave_to_nginx(video, headers)
        may_go = follows_redirects(request.headers, is_download=_is_download())
        if settings.direct_downloads and may_go and (url := _signed_url(video, headers)):
            return _redirect(url)
    if len(spans) > 1:
        return _send_parts(video, spans, headers)
    return send_span(spans, video.known_length, headers, lambda span: _body(video, span))


def _leave_to_nginx(video: Upload, headers: dict[str, str]) -> Response:
    if url := _signed_url(video, headers):
        headers[BUCKET_HEADER] = url
    else:
        current_services().library.hand_over(video)
    del headers["Accept-Ranges"]  # nginx adds its own.
    headers[ACCEL_HEADER] = current_services().settings.accel_redirect + video.id
    return Response(headers=headers)


def _redirect(url: str) -> Response:
    """A redirect that must not be cached: whoever has the URL gets the file."""
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Location": url}
    return Response(status=302, headers=headers)


def _signed_url(video: Upload, headers: Mapping[str, str]) -> str | None:
    return current_services().library.signed_url(
        video,
        content_type=headers["Content-Type"],
        disposition=headers["Content-Disposition"],
    )


def _send_parts(video: Upload, spans: list[ByteRange], headers: dict[str, str]) -> Response:
    file = current_services().library.open(video, spans[0])
    layout = Layout(spans, video.known_length, headers["Content-Type"])
    headers["Content-Type"] = f"multipart/byteranges; boundary={layout.boundary}"
    headers["Content-Length"] = str(layout.content_length)
    body = parts_body(request.environ, file, layout)
    return Response(body, status=206, headers=headers, direct_passthrough=True)


def _body(video: Upload, span: ByteRange) -> Iterable[bytes]:
    return span_body(request.environ, current_services().library.open(video, span), span)


@lru_cache(maxsize=256)
def _file_headers(
    filename: str, validators: Validators, *, can_play: bool, is_download: bool
) -> Mapping[str, str]:
    """Headers that are the same for every range of a file; players ask for many."""
    return {
        "Accept-Ranges": "bytes",
        "ETag": quote_etag(validators.etag),
        "Last-Modified": http_date(validators.last_modified),
        "Cache-Control": "private, no-cache",
        "Content-Disposition": content_disposition(
            filename, is_attachment=is_download or not can_play
        ),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": PLAYER_ONLY if can_play else SANDBOX,
        "Cross-Origin-Resource-Policy": "same-origin",
    }


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
