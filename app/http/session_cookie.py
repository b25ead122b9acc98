"""Cookies of sign-in; that of a session is `__Host-sluice`, or `sluice` over plain HTTP.

Browsers accept a `__Host-` cookie only over HTTPS and only from this host: neither a page on
another host of the domain nor an attacker on the network can plant a session (session fixation).
"""

from __future__ import annotations

import secrets
from typing import Any

from flask import request, url_for
from werkzeug import Response
from werkzeug.http import parse_cookie

from app.access.people import Person
from app.access.signing import LIFETIME
from app.http.context import ViewContext

NAME = "sluice"
SECURE_PREFIX = "__Host-"

DEVICE = "sluice-device"
"""Proves that a person has signed in with this browser before; see `app/access/sessions.py`."""

BROWSER = "sluice-browser"
"""Identifies a browser before sign-in: see `SingleUse`."""

BROWSER_BYTES = 16

MAX_AGE_SECONDS = 400 * 24 * 3600
"""The maximum that browsers allow. The server ends an unused session much earlier."""


def value_in(environ: dict[str, Any], name: str = NAME) -> str:
    """The value of our cookie, or an empty string."""
    cookies = environ.get("HTTP_COOKIE", "")
    if name not in cookies:
        return ""
    return parse_cookie(cookies).get(_name(name, environ["wsgi.url_scheme"]), "")


def begin_session(ctx: ViewContext, response: Response, person: Person, *, method: str) -> Response:
    """Add the cookies of a new session to the response; the browser's earlier session ends."""
    identity = ctx.services.identity
    cookie = identity.sessions.begin(
        ctx,
        person,
        method,
        agent=request.environ.get("HTTP_USER_AGENT", ""),
        replaces=value_in(request.environ),
    )
    set_cookie(response, identity.sign_in.remember(person), DEVICE)
    return set_cookie(response, cookie)


def mark_of() -> str:
    """The browser's identifier, new unless it has sent one. Send it with `set_mark`."""
    return value_in(request.environ, BROWSER) or secrets.token_urlsafe(BROWSER_BYTES)


def set_mark(response: Response, mark: str) -> Response:
    """Add the identifier's cookie to the response; it lasts as long as a sign-in may take."""
    return set_cookie(response, mark, BROWSER, seconds=int(LIFETIME.total_seconds()))


def end_session(ctx: ViewContext, response: Response) -> Response:
    """End the browser's session, and remove its cookie."""
    if cookie := value_in(request.environ):
        ctx.services.identity.sessions.end(ctx, cookie)
    response.headers["Clear-Site-Data"] = '"cache"'  # Posters and videos, too.
    return set_cookie(response, "")


def set_cookie(
    response: Response,
    value: str,
    name: str = NAME,
    *,
    seconds: int = MAX_AGE_SECONDS,
) -> Response:
    """Add a cookie to the response; with an empty value, the browser removes it."""
    response.set_cookie(
        _name(name, request.scheme),
        value,
        max_age=seconds if value else 0,
        path="/",
        secure=request.scheme == "https",
        httponly=True,
        samesite="Lax",
    )
    return response


def _name(name: str, scheme: str) -> str:
    return f"{SECURE_PREFIX}{name}" if scheme == "https" else name


# ---- the page after sign-in ----------------------------------------------------------------------


def next_page(wanted: str) -> str:
    """The page to open after sign-in: the one they wanted, or the start page."""
    return wanted if is_local_path(wanted) else url_for("pages.index")


def is_local_path(text: str) -> bool:
    """Whether the text is a path on this server (prevents open redirects).

    Two slashes begin a host, and in browsers so does a slash with a backslash; browsers also drop
    tabs and line breaks.
    """
    is_path = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return is_path and text.isprintable() and " " not in text
