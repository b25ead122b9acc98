"""The cookie of a session: `__Host-sluice` over HTTPS, `sluice` over plain HTTP.

Browsers accept a `__Host-` cookie only over HTTPS and only from this host: neither a page on
another host of the domain nor an attacker on the network can plant a session (session fixation).
"""

from __future__ import annotations

import secrets
from typing import Any

from flask import Request
from werkzeug import Response
from werkzeug.http import parse_cookie

from app.access import audit
from app.access.audit import AuditAction
from app.access.people import Person
from app.access.signing import LIFETIME
from app.core.access import Caller, CallerKind
from app.http.context import ViewContext

NAME = "sluice"
SECURE_PREFIX = "__Host-"

DEVICE = "sluice-device"
"""Proves that a person has signed in with this browser before; see `app/access/sign_in.py`."""

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


def begin_session(
    ctx: ViewContext, request: Request, response: Response, person: Person, *, method: str
) -> Response:
    """Add the cookies of a new session to the response; the browser's earlier session ends."""
    environ, identity = request.environ, ctx.services.identity
    cookie = identity.sessions.begin(
        person,
        method,
        address=environ.get("REMOTE_ADDR", ""),
        agent=environ.get("HTTP_USER_AGENT", ""),
        replaces=value_in(environ),
    )
    caller = Caller(kind=CallerKind.PERSON, id=person.id, name=person.name)
    audit.note(
        ctx,
        AuditAction.SESSION_BEGAN,
        f"person:{person.id}",
        caller=caller,
        details={"method": method},
    )
    set_cookie(request, response, identity.sign_in.remember(person), DEVICE)
    return set_cookie(request, response, cookie)


def mark_of(request: Request) -> str:
    """The browser's identifier, new unless it has sent one. Send it with `set_mark`."""
    return value_in(request.environ, BROWSER) or secrets.token_urlsafe(BROWSER_BYTES)


def set_mark(request: Request, response: Response, mark: str) -> Response:
    """Add the identifier's cookie to the response; it lasts as long as a sign-in may take."""
    return set_cookie(request, response, mark, BROWSER, seconds=int(LIFETIME.total_seconds()))


def end_session(ctx: ViewContext, request: Request, response: Response) -> Response:
    """End the browser's session, and remove its cookie."""
    if cookie := value_in(request.environ):
        ctx.services.identity.sessions.end(cookie)
        audit.note(ctx, AuditAction.SESSION_ENDED, ctx.caller.actor)
    response.headers["Clear-Site-Data"] = '"cache"'  # Posters and videos, too.
    return set_cookie(request, response, "")


def set_cookie(
    request: Request,
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
