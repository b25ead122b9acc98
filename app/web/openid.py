"""Sign-in with an OpenID provider: redirect to the provider, and its callback."""

from __future__ import annotations

from dataclasses import replace

from flask import Blueprint, redirect, request, url_for
from werkzeug import Response
from werkzeug.exceptions import NotFound

from app.access import audit
from app.access.accounts import audit_ended
from app.access.audit import AuditAction
from app.access.openid import ProviderIdentity
from app.access.people import Person
from app.access.services import OpenId
from app.access.sessions import PROVIDER
from app.access.signing import LIFETIME
from app.core.access import Action, Caller, CallerKind
from app.core.errors import SignInRefused
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
    identity, target = openid.provider.finish(request.args.to_dict(), cookie, _callback())
    response = begin_session(
        ctx, redirect(target, 303), _person(ctx, openid, identity), method=PROVIDER
    )
    return set_cookie(response, "", WAITING)


def _person(ctx: ViewContext, openid: OpenId, identity: ProviderIdentity) -> Person:
    try:
        arrival = openid.accounts.arrive(identity)
    except SignInRefused:
        audit.note(
            ctx, AuditAction.SESSION_REFUSED, details={"email": identity.email, "method": PROVIDER}
        )
        raise
    person = arrival.person
    caller = Caller(kind=CallerKind.PERSON, id=person.id, name=person.name)
    if arrival.is_new:
        audit.note(
            ctx,
            AuditAction.PERSON_ADDED,
            caller.actor,
            caller=caller,
            details={"email": person.email},
        )
    for project, role in arrival.joined.items():
        audit.note(
            ctx,
            AuditAction.MEMBER_ADDED,
            caller.actor,
            project=project,
            caller=caller,
            details={"email": person.email, "role": role, "by": PROVIDER},
        )
    if arrival.is_first:
        audit.note(
            ctx,
            AuditAction.PROVIDER_LINKED,
            caller.actor,
            caller=caller,
            details={"issuer": identity.issuer},
        )
    audit_ended(replace(ctx, caller=caller), person, arrival.ended, "provider")
    return person


def _callback() -> str:
    """The redirect URI, which the operator registers at the provider."""
    return url_for("openid.finish", _external=True)


def _openid(ctx: ViewContext) -> OpenId:
    openid = ctx.services.identity.openid
    if openid is None:
        raise NotFound("This server has no sign-in service.")
    return openid
