"""Which origins and hosts may use the service (CORS, CSRF), and what our pages may load (CSP)."""

from __future__ import annotations

import secrets
from functools import lru_cache

from flask import Request, Response, g
from werkzeug.exceptions import Forbidden, SecurityError
from werkzeug.sansio.utils import host_is_trusted

from app.http.context import current_services
from app.http.proxy import host_as_sent
from app.ingest.slots import SAFE_METHODS

ASKED_BY_ADDRESS = frozenset({"/healthz", "/readyz"})
"""Load balancers and container engines use an address, not a name."""

OVERRIDE = "HTTP_X_HTTP_METHOD_OVERRIDE"
"""With this header, a request's method may stand for another."""

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
"""Every response header of ours that a script may need; browsers hide all others."""

REFUSED = "This server takes no requests from pages of other sites."

PREFLIGHT_SECONDS = 86_400
"""How long a browser may remember a preflight; Chromium caps it at two hours."""


def refuse_other_names(request: Request, allowed: frozenset[str]) -> None:
    """Refuse a request for a host name that is not in `allowed`; an empty set allows all.

    A hostile page can point its own name at this machine (DNS rebinding). To the browser the
    service is then part of that page's site, regardless of the allowed origins. Such a page can
    send any header but `Host`, perhaps from a trusted proxy's address: so both the forwarded name
    and the one in `Host` must be allowed.
    """
    if not allowed or request.path in ASKED_BY_ADDRESS:
        return
    sent, forwarded = host_as_sent(request.environ), request.environ.get("HTTP_HOST", "")
    for host in (sent,) if forwarded == sent else (sent, forwarded):
        if not _is_allowed(host, allowed):
            raise SecurityError(
                f"This server does not answer to the name {host!r}. SLUICE_ALLOWED_HOSTS lists its "
                "names."
            )


@lru_cache(maxsize=64)  # Werkzeug parses each allowed name: 4 of 125 us of a small request.
def _is_allowed(host: str, allowed: frozenset[str]) -> bool:
    name = host.lower()
    if name.startswith("[::1]"):  # Werkzeug's lists do not support IPv6 addresses.
        name = "localhost" + name.removeprefix("[::1]")
    return host_is_trusted(name, allowed)


def refuse_other_sites(request: Request, allowed: frozenset[str], *, is_open: bool) -> None:
    """Refuse a request that changes something, sent by a page whose origin is not `allowed`.

    Browsers send the relation of the page's site to ours (Sec-Fetch-Site) and its origin; programs
    send neither. Without this check, any page could upload or delete here through its visitor's
    browser (CSRF). A proxy may have changed `Host`, so "same-origin" outranks the names.

    Pages of the same site, on a sibling host or another port, are allowed if the server is open.
    With accounts they are not: their requests carry cookies that are `SameSite=Lax`.
    """
    if not is_from_other_site(request) or _allowed_origin(request, allowed) is not None:
        return
    if not is_open or request.environ.get("HTTP_SEC_FETCH_SITE") != "same-site":
        raise Forbidden(REFUSED)


def require_own_page(request: Request) -> None:
    """Refuse a request that changes something from any other origin, even an allowed one.

    People sign in only on our pages.
    """
    if is_from_other_site(request):
        raise Forbidden(REFUSED)


def is_from_other_site(request: Request) -> bool:
    """Whether the request may change something, and comes from a page of another origin.

    A WebSocket handshake counts: it is a GET, but its messages change something, and browsers let
    any page send one, with our cookies.
    """
    environ = request.environ
    is_safe = request.method in SAFE_METHODS and OVERRIDE not in environ
    if is_safe and environ.get("HTTP_UPGRADE", "").lower() != "websocket":
        return False
    relation = environ.get("HTTP_SEC_FETCH_SITE")
    if relation in {"same-origin", "none", "cross-site"}:
        return bool(relation == "cross-site")
    origin = environ.get("HTTP_ORIGIN")
    if origin is None:
        return False
    # Not `request.host`: Werkzeug leaves it empty for names that DNS does not allow, such as
    # my_server. The origin of a sandboxed page, `null`, would then look like our own.
    default_port = ":443" if request.scheme == "https" else ":80"
    own_host = environ.get("HTTP_HOST", "").lower().removesuffix(default_port)
    return not own_host or origin.lower().partition("://")[2] != own_host


def answer_preflight(request: Request, allowed: frozenset[str]) -> Response | None:
    """The response to a CORS preflight from an allowed origin; None for other requests."""
    if request.method != "OPTIONS" or _allowed_origin(request, allowed) is None:
        return None
    if "Access-Control-Request-Method" not in request.headers:
        return None
    response = Response(status=204)
    response.headers["Access-Control-Allow-Methods"] = METHODS
    # All requested headers are allowed: views read only those they know.
    response.headers["Access-Control-Allow-Headers"] = request.headers.get(
        "Access-Control-Request-Headers", ""
    )
    response.headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)
    return response


def open_to_origin(request: Request, response: Response, allowed: frozenset[str]) -> None:
    """Let an allowed page read the response, which differs from that for any other origin."""
    response.vary.add("Origin")
    origin = _allowed_origin(request, allowed)
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = EXPOSED


def _allowed_origin(request: Request, allowed: frozenset[str]) -> str | None:
    """The origin of the requesting page, if it is an allowed one."""
    origin: str | None = request.environ.get("HTTP_ORIGIN")
    return origin if origin is not None and allowed & {origin, ANY_ORIGIN} else None


# ---- content security policy ---------------------------------------------------------------------

# What our own pages may load: nothing inline, and nothing from other origins but the bucket.


PAGE_POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
"""Sent with every response, unless its view sets another policy."""

NONCE_BYTES = 16
"""At least 128 bits, as Content Security Policy Level 3, section 7.1, requires."""


def style_nonce() -> str:
    """The nonce that a `<style>` of this page needs to be applied; for templates.

    The player's elements have `<style>` in their shadow roots. The page's script gives them the
    nonce. Injected markup does not know it, so 'unsafe-inline' is not needed.
    """
    nonce: str = g.setdefault("style_nonce", secrets.token_urlsafe(NONCE_BYTES))
    return nonce


def widen_policy(response: Response) -> Response:
    """Allow styles with the nonce, if the page uses one, and direct uploads to the bucket."""
    more = []
    if nonce := g.get("style_nonce"):
        more.append(f"style-src 'self' 'nonce-{nonce}'")
    if direct := current_services().direct:
        more.append(f"connect-src 'self' {direct.origin}")
    if more:
        response.headers["Content-Security-Policy"] = "; ".join([PAGE_POLICY, *more])
    return response
