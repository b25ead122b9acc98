"""Sign-in with an OpenID provider: redirect to the provider, and its callback."""

from __future__ import annotations

from flask import Blueprint, redirect, request, url_for
from werkzeug import Response
from werkzeug.exceptions import NotFound

from app.access.openid import OpenId
from app.access.sessions import PROVIDER
from app.access.signing import LIFETIME
from app.core.access import Action
from app.http.access import requires
from app.http.context import ViewContext
from app.http.session_cookie import begin_session, next_page, set_cookie, value_in

WAITING = "sluice-provider"
"""The cookie of a browser that was redirected to the provider."""

blueprint = Blueprint("openid", __name__, url_prefix="/sign-in/provider")


@blueprint.get("")
@requires(Action.VISIT)
def begin(ctx: ViewContext) -> Response:
    """Redirect the browser to the provider; it finally arrives at the path `next`."""
    target = next_page(request.args.get("next", ""))
    url, cookie = _openid(ctx).provider.begin(_callback(), next_path=target)
    seconds = int(LIFETIME.total_seconds())
    return set_cookie(redirect(url, 303), cookie, WAITING, seconds=seconds)


@blueprint.get("/callback")
@requires(Action.VISIT)
def finish(ctx: ViewContext) -> Response:
    """Create a session for a valid response of the provider.

    A GET that changes something: the browser must send the cookie with the response's `state`,
    which works once.
    """
    openid = _openid(ctx)
    cookie = value_in(request.environ, WAITING)
    person, target = openid.finish(ctx, request.args.to_dict(), cookie, _callback())
    response = begin_session(ctx, redirect(target, 303), person, method=PROVIDER)
    return set_cookie(response, "", WAITING)


def _callback() -> str:
    """The redirect URI, which the operator registers at the provider."""
    return url_for("openid.finish", _external=True)


def _openid(ctx: ViewContext) -> OpenId:
    openid = ctx.services.identity.openid
    if openid is None:
        raise NotFound("This server has no sign-in service.")
    return openid
