"""Pages of other sites: which may send requests here, and what they get to see (CORS)."""

from __future__ import annotations

from flask import Flask, Response, request
from werkzeug.exceptions import Forbidden

from app.http.context import current_services

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

OVERRIDE = "X-HTTP-Method-Override"
"""With it any method may mean another."""

ANY_ORIGIN = "*"

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

EXPOSED = ", ".join(
    [
        "Accept-Ranges",
        "Content-Disposition",
        "Content-Range",
        "ETag",
        "Link",
        "Location",
        "Repr-Digest",
        "Retry-After",
        "Server-Timing",
        "Tus-Checksum-Algorithm",
        "Tus-Extension",
        "Tus-Max-Size",
        "Tus-Resumable",
        "Tus-Version",
        "Upload-Complete",
        "Upload-Concat",
        "Upload-Defer-Length",
        "Upload-Draft-Interop-Version",
        "Upload-Expires",
        "Upload-Incomplete",
        "Upload-Length",
        "Upload-Limit",
        "Upload-Metadata",
        "Upload-Offset",
        "X-Request-ID",
    ]
)
"""Every header of ours that a script may need; browsers hide all others."""

PREFLIGHT_SECONDS = 86_400
"""How long a browser may remember a preflight; Chromium caps it at two hours."""


def init_app(app: Flask) -> None:
    """Let in the origins of the settings, and no page of any other site."""
    app.before_request(_refuse_other_sites)
    app.before_request(_answer_preflight)
    app.after_request(_open_to_origin)


def _refuse_other_sites() -> None:
    """A page elsewhere must not upload or delete here through a visitor's browser.

    Browsers name the page's origin with every such request; programs send none.
    """
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and origin.lower().partition("://")[2] != _own_host()
    is_foreign = is_foreign or request.headers.get("Sec-Fetch-Site") == "cross-site"
    is_safe = request.method in SAFE_METHODS and OVERRIDE not in request.headers
    if is_foreign and not is_safe and _allowed_origin() is None:
        raise Forbidden("This server takes no requests from pages of other sites.")


def _own_host() -> str | None:
    """Host and port of the request's URL, as an origin has them; None where it has none.

    Werkzeug's `request.host` is empty for names that DNS does not have: my_server is one, and the
    origin of a page in a sandbox, `null`, would be no other.
    """
    default_port = ":443" if request.scheme == "https" else ":80"
    return request.environ.get("HTTP_HOST", "").lower().removesuffix(default_port) or None


def _answer_preflight() -> Response | None:
    """A browser asks before it sends what an HTML form could not."""
    is_preflight = "Access-Control-Request-Method" in request.headers
    if request.method != "OPTIONS" or not is_preflight or _allowed_origin() is None:
        return None
    response = Response(status=204)
    response.headers["Access-Control-Allow-Methods"] = METHODS
    # Whatever header a page sends, the views read those they know.
    response.headers["Access-Control-Allow-Headers"] = request.headers.get(
        "Access-Control-Request-Headers", ""
    )
    response.headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)
    return response


def _open_to_origin(response: Response) -> Response:
    if current_services().settings.cors_origins:
        response.vary.add("Origin")
    origin = _allowed_origin()
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = EXPOSED
    return response


def _allowed_origin() -> str | None:
    """The origin of the requesting page, if it is one of the settings."""
    origin = request.headers.get("Origin")
    allowed = current_services().settings.cors_origins
    return origin if origin is not None and allowed & {origin, ANY_ORIGIN} else None
