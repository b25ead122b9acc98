"""GET and HEAD /media/{id}."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import quote

from flask import Blueprint, request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import PreconditionFailed, RequestedRangeNotSatisfiable
from werkzeug.http import http_date, quote_etag
from werkzeug.wrappers import Response

from app.core.access import Action, scope_of
from app.core.errors import NotAllowed
from app.core.policy import OPAQUE
from app.core.ranges import ByteRange
from app.core.upload import Upload, parse_upload_id
from app.deliver import bodies, conditional
from app.http.access import requires
from app.http.context import SENDING_KEY, ViewContext, note_upload
from app.http.documents import plays_original
from app.http.openapi import ResponseSpec, describes, header, query
from app.http.proxy import is_forwarded

# ---- redirects -----------------------------------------------------------------------------------

# Lets nginx, or the bucket itself, send the bytes of a download.
#
# nginx (X-Accel-Redirect) drops the body of our response and sends a file from an internal location
# instead, or fetches it from the bucket at the URL in `BUCKET_HEADER`. A client that follows
# redirects can be redirected to the bucket. Neither knows our validators, and they parse some Range
# headers differently, so we serve such requests ourselves. `deploy/nginx.conf` and
# `deploy/nginx-bucket.conf` have nginx's configuration, with the headers it would drop.


ACCEL_HEADER = "X-Accel-Redirect"
BUCKET_HEADER = "X-Bucket-URL"

_OURS_ALONE = ("If-Match", "If-Unmodified-Since")
"""nginx and the bucket compare these with their own validators, which the client never got."""

_NOT_ELSEWHERE = (*_OURS_ALONE, "If-None-Match", "If-Modified-Since", "If-Range")

_PLAIN_RANGE = re.compile("bytes=([0-9]{1,18}-[0-9]{0,18}|-[0-9]{1,18})")
"""A single range. For several, nginx sends overlapping bytes twice, and S3 sends none. nginx
answers malformed ranges and numbers beyond 63 bits with 416. Garage needs the unit in lower case.
"""


def is_decided_alike(headers: Headers, *, has_range: bool) -> bool:
    """Whether nginx or a bucket would answer these request headers as we do.

    `has_range` says whether there is a Range that applies and can be satisfied.
    """
    if any(name in headers for name in _OURS_ALONE):
        return False
    asked = headers.get("Range")
    return asked is None or (has_range and _PLAIN_RANGE.fullmatch(asked) is not None)


def follows_redirects(headers: Headers, *, is_download: bool) -> bool:
    """Whether the client may be redirected to another origin for a file.

    Browsers mark downloads and opened links (Fetch Metadata), though not to sites without TLS.
    Resources of pages, including videos, must come from our origin: the pages' policies allow no
    other, and a player would use a signed URL after it expired. A client that sends conditions
    would repeat them to the bucket, which has different validators.
    """
    if any(name in headers for name in _NOT_ELSEWHERE):
        return False
    mode = headers.get("Sec-Fetch-Mode")
    return is_download if mode is None else mode == "navigate"


# ---- responses -----------------------------------------------------------------------------------

# Responses to GET and HEAD of anything stored: conditions, ranges, the headers of both.


_CONDITIONS = {
    f"HTTP_{name.upper().replace('-', '_')}": name
    for name in (
        *("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"),
        "Range",
    )
}
"""Conditional and Range headers, by their keys in the WSGI environment."""


CACHING = "private, no-cache"
"""Cached but revalidated each time."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Something that can be sent: its length in bytes and its headers."""

    length: int
    content_type: str
    validators: conditional.Validators
    headers: Mapping[str, str]
    """All other headers, for every status."""


def stored_headers(validators: conditional.Validators, *, policy: str) -> dict[str, str]:
    """Headers of everything that is stored; `policy` is its Content-Security-Policy."""
    return {
        "Accept-Ranges": "bytes",
        "ETag": quote_etag(validators.etag),
        "Last-Modified": http_date(validators.last_modified),
        "Cache-Control": CACHING,
        "Content-Security-Policy": policy,
        "Cross-Origin-Resource-Policy": "same-origin",
    }


Send = Callable[[list[ByteRange], dict[str, str]], Response]
"""Responds to a GET with the requested spans (none for everything) and these headers."""


def answer(stored: Stored, send: Send) -> Response:
    """The response for the request's method, conditional headers and Range."""
    environ = request.environ
    conditions = {name: environ[key] for key, name in _CONDITIONS.items() if key in environ}
    outcome = conditional.evaluate(conditions, stored.validators)
    if outcome is conditional.Outcome.NOT_MODIFIED:
        return Response(status=304, headers=stored.headers)
    if outcome is conditional.Outcome.PRECONDITION_FAILED:
        raise PreconditionFailed("The file is not the one the request is about.")
    headers = {**stored.headers, "Content-Type": stored.content_type}
    if request.method == "HEAD":
        return Response(headers={**headers, "Content-Length": str(stored.length)})
    spans: list[ByteRange] = []
    if conditional.range_applies(conditions, stored.validators):
        try:
            spans = conditional.requested_spans(conditions.get("Range"), stored.length)
        except conditional.RangeNotSatisfiable as error:
            raise RequestedRangeNotSatisfiable(stored.length) from error
    return send(spans, headers)


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
        headers["Content-Range"] = conditional.content_range(span, length)
    status = 206 if spans else 200
    return Response(body(span), status=status, headers=headers, direct_passthrough=True)


# ---- blueprint -----------------------------------------------------------------------------------


blueprint = Blueprint("delivery", __name__)

PLAYER_ONLY = "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'"
"""For a video opened directly: the browser's own player with its style, and nothing else."""

SANDBOX = "default-src 'none'; sandbox"
"""For all other files, in case a browser shows one. A video would not play with it: a sandboxed
page has no origin to load the video from."""


FILE_HEADERS = ("ETag", "Last-Modified", "Accept-Ranges", "Content-Disposition")


@blueprint.get("/media/<upload_id>")
@requires(Action.WATCH)
@describes(
    "fetchFile",
    {
        200: ResponseSpec("The whole file.", {"*/*": bytes}, FILE_HEADERS),
        206: ResponseSpec(
            "The range, with a `Content-Range`. Several ranges come as `multipart/byteranges`, "
            "with a `Content-Range` in each part.",
            {"*/*": bytes},
            (*FILE_HEADERS, "Content-Range"),
        ),
        304: ResponseSpec("The client has this version.", headers=FILE_HEADERS),
    },
    *(PreconditionFailed, RequestedRangeNotSatisfiable),
    parameters=(
        query("download", "Even empty: `Content-Disposition` is `attachment` for every type."),
        header("If-Match", "Send only if the file has one of these entity tags."),
        header("If-None-Match", "Send only if the file has none of these entity tags."),
        header("If-Unmodified-Since", "Send only if the file is not newer."),
        header("If-Modified-Since", "Send only if the file is newer."),
        header(
            "Range",
            "Up to 100 ranges, such as `bytes=0-9`. A header that is malformed or has more ranges "
            "is ignored: the whole file is sent.",
        ),
        header(
            "If-Range",
            "Send the range only if the file has this tag or date, otherwise all of it.",
        ),
    ),
    head="lookAtFile",
)
def media(ctx: ViewContext, upload_id: str) -> Response:
    """Get a video's bytes, or ranges of them."""
    is_download = _is_download()
    caller = ctx.caller
    scope = scope_of(caller, Action.DOWNLOAD) if is_download else ctx.scope
    video = note_upload(ctx.services.library.get(scope, parse_upload_id(upload_id)))
    if not caller.can_download:
        (playback,) = ctx.services.media.library.playbacks([video])
        if not plays_original(video, playback):
            raise NotAllowed("This video is only to be watched.")
    # The bytes of a video never change, but a new name may change its type. A browser keeps the old
    # type along with its copy after a 304, so the tag includes the type. Any other new name leaves
    # the tag unchanged, so that interrupted downloads can be resumed.
    content_type, published_at = video.content_type, video.published_at or video.active_at
    validators = conditional.Validators(
        f"{video.id}-{content_type}", published_at.replace(microsecond=0)
    )
    headers = _file_headers(
        video.filename, validators, can_play=content_type != OPAQUE, is_download=is_download
    )
    stored = Stored(video.known_length, content_type, validators, headers)
    return answer(stored, lambda spans, headers: _send(ctx, video, spans, headers))


def _is_download() -> bool:
    return bool(request.query_string) and "download" in request.args


def _send(
    ctx: ViewContext, video: Upload, spans: list[ByteRange], headers: dict[str, str]
) -> Response:
    """Let nginx or the bucket send the bytes where they do it as we would, or send them."""
    settings, library = ctx.services.settings, ctx.services.library
    if is_decided_alike(request.headers, has_range=bool(spans)):
        by_nginx = settings.accel_redirect and is_forwarded(request.environ)
        by_bucket = settings.direct_downloads and follows_redirects(
            request.headers, is_download=_is_download()
        )
        url = None
        if by_nginx or by_bucket:
            url = library.signed_url(
                video,
                content_type=headers["Content-Type"],
                disposition=headers["Content-Disposition"],
            )
        if by_nginx:
            if url:
                headers[BUCKET_HEADER] = url
            else:
                library.hand_over(video)
            del headers["Accept-Ranges"]  # nginx adds its own.
            headers[ACCEL_HEADER] = settings.accel_redirect + video.id
            return Response(headers=headers)
        if url:
            # Not to be cached: anyone with the URL gets the file.
            return Response(
                status=302,
                headers={
                    "Cache-Control": "no-store",
                    "Referrer-Policy": "no-referrer",
                    "Location": url,
                },
            )
    if len(spans) > 1:
        file = library.open(video, spans[0])
        layout = bodies.Layout(spans, video.known_length, headers["Content-Type"])
        headers["Content-Type"] = f"multipart/byteranges; boundary={layout.boundary}"
        headers["Content-Length"] = str(layout.content_length)
        body = bodies.PartsOfFile(file, layout, request.environ.get(SENDING_KEY))
        return Response(body, status=206, headers=headers, direct_passthrough=True)

    def body_of(span: ByteRange) -> Iterable[bytes]:
        return bodies.span_body(request.environ, library.open(video, span), span)

    return send_span(spans, video.known_length, headers, body_of)


@lru_cache(maxsize=256)
def _file_headers(
    filename: str, validators: conditional.Validators, *, can_play: bool, is_download: bool
) -> Mapping[str, str]:
    """Headers that are the same for every range of a file; players ask for many."""
    is_attachment = is_download or not can_play
    return {
        **stored_headers(validators, policy=PLAYER_ONLY if can_play else SANDBOX),
        "Content-Disposition": content_disposition(filename, is_attachment=is_attachment),
        "X-Content-Type-Options": "nosniff",
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
