"""Passkeys: registered on the account page, and used on the sign-in page.

The scripts of both pages exchange JSON with these views, each in two steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import NotFound

from app.access import audit
from app.access.audit import AuditAction
from app.access.people import find_person
from app.access.sessions import require_known_way
from app.access.signing import Browser
from app.core.access import Action
from app.core.errors import SignInRefused
from app.core.names import clean_name
from app.http.access import requires
from app.http.bodies import json_object, member
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.session_cookie import (
    BROWSER,
    begin_session,
    mark_of,
    next_page,
    set_mark,
    value_in,
)

if TYPE_CHECKING:
    from app.access.passkeys import Passkeys

blueprint = Blueprint("passkeys", __name__)
blueprint.before_request(lambda: require_own_page(request))


@blueprint.post("/account/passkeys/options")
@requires(Action.SECURE_ACCOUNT)
def begin_registration(ctx: ViewContext) -> Response:
    """Options for creating a passkey, and the token to send with the new credential.

    Requires the `password` unless the person has signed in recently.
    """
    identity, person = ctx.services.identity, find_person(ctx, ctx.caller.id)
    if person is not None:
        require_known_way(ctx, person)
        if not identity.sessions.has_just_begun(ctx):
            password = member(json_object(ctx), "password", kind=str, default="")
            identity.sign_in.confirm(person, password)
    options, token = _passkeys(ctx).begin_registration(ctx.caller.id, _signed_in_browser(ctx))
    return jsonify({"options": options, "token": token})


@blueprint.post("/account/passkeys")
@requires(Action.SECURE_ACCOUNT)
def register(ctx: ViewContext) -> tuple[Response, int]:
    """Store the `credential` that a device created, under a `name`."""
    body, browser = json_object(ctx), _signed_in_browser(ctx)
    name = clean_name(member(body, "name", kind=str))
    credential = member(body, "credential", kind=dict)
    token = member(body, "token", kind=str)
    person_id = ctx.caller.id
    person = find_person(ctx, person_id)
    if person is not None:
        require_known_way(ctx, person)
    passkey = _passkeys(ctx).register(person_id, browser, credential, token, name=name)
    if ctx.caller.needs_second_factor:  # The device has just verified its owner.
        ctx.services.identity.sessions.strengthen(ctx, "passkey")
    audit.note(
        ctx, AuditAction.PASSKEY_ADDED, f"passkey:{passkey.id}", details={"name": passkey.name}
    )
    return jsonify({"id": passkey.id, "name": passkey.name}), 201


@blueprint.post("/account/passkeys/<passkey_id>/remove")
@requires(Action.HAVE_ACCOUNT)
def remove(ctx: ViewContext, passkey_id: str) -> BaseResponse:
    """Delete one of the person's own passkeys; for the form of the account page."""
    passkey = _passkeys(ctx).remove(ctx.caller.id, passkey_id)
    if passkey is not None:
        audit.note(
            ctx,
            AuditAction.PASSKEY_REMOVED,
            f"passkey:{passkey.id}",
            details={"name": passkey.name},
        )
    return redirect(url_for("account.show", done="passkey-removed"), 303)


@blueprint.post("/sign-in/passkey/options")
@requires(Action.VISIT)
def begin_sign_in(ctx: ViewContext) -> BaseResponse:
    """Options for an assertion by a passkey, and the token to send with it."""
    mark = mark_of()
    options, token = _passkeys(ctx).begin_sign_in(_browser(mark))
    return set_mark(jsonify({"options": options, "token": token}), mark)


@blueprint.post("/sign-in/passkey")
@requires(Action.VISIT)
def sign_in(ctx: ViewContext) -> BaseResponse:
    """Create a session; the response has the path of the `next` page."""
    body, browser = json_object(ctx), _browser(value_in(request.environ, BROWSER))
    credential, token = member(body, "credential", kind=dict), member(body, "token", kind=str)
    try:
        person = _passkeys(ctx).sign_in(browser, credential, token)
    except SignInRefused as error:
        if error.person_id:  # Otherwise strangers could fill the log with unknown passkeys.
            subject = f"person:{error.person_id}"
            audit.note(ctx, AuditAction.SESSION_REFUSED, subject, details={"method": "passkey"})
        raise
    target = next_page(member(body, "next", kind=str, default=""))
    return begin_session(ctx, jsonify({"next": target}), person, method="passkey")


def _passkeys(ctx: ViewContext) -> Passkeys:
    passkeys = ctx.services.identity.passkeys
    if passkeys is None:
        raise NotFound("This server has no passkeys.")
    return passkeys


def _signed_in_browser(ctx: ViewContext) -> Browser:
    return _browser(ctx.caller.session)


def _browser(mark: str) -> Browser:
    return Browser(f"{request.scheme}://{request.host}", mark)
