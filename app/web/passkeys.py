"""Passkeys: registered on the account page, and used on the sign-in page.

The scripts of both pages exchange JSON with these views, each in two steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from msgspec import Struct
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import NotFound

from app.access import audit
from app.access.audit import AuditAction
from app.access.signing import Browser
from app.core.access import Action
from app.core.errors import SignInRefused
from app.core.names import clean_name
from app.http.access import requires
from app.http.bodies import json_body, takes
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.session_cookie import BROWSER, mark_of, set_mark, value_in
from app.http.signing_in import confirm, must_confirm, next_page, require_known_way, signed_in

if TYPE_CHECKING:
    from app.access.passkeys import Passkeys

blueprint = Blueprint("passkeys", __name__)
blueprint.before_request(lambda: require_own_page(request))


class Confirmation(Struct):
    """The password of a person who has not signed in recently."""

    password: str | None = None


class Registration(Struct):
    """A credential that a device has created."""

    name: str
    credential: dict[str, Any]
    token: str


class Assertion(Struct):
    """A device's answer to the options of a sign-in."""

    credential: dict[str, Any]
    token: str
    next: str | None = None


@blueprint.post("/account/passkeys/options")
@requires(Action.SECURE_ACCOUNT)
def begin_registration(ctx: ViewContext) -> Response:
    """Options for creating a passkey, and the token to send with the new credential.

    Requires the `password` unless the person has signed in recently.
    """
    identity = ctx.services.identity
    person = identity.people.find(ctx.caller.id)
    if person is not None:
        require_known_way(ctx, person)
        if must_confirm(ctx, person):
            confirm(ctx, person, json_body(ctx, Confirmation).password or "")
    options, token = _passkeys(ctx).begin_registration(ctx.caller.id, _signed_in_browser(ctx))
    return jsonify({"options": options, "token": token})


@blueprint.post("/account/passkeys")
@requires(Action.SECURE_ACCOUNT)
@takes(Registration)
def register(ctx: ViewContext, new: Registration) -> tuple[Response, int]:
    """Store the `credential` that a device created, under a `name`."""
    name, browser, person_id = clean_name(new.name), _signed_in_browser(ctx), ctx.caller.id
    person = ctx.services.identity.people.find(person_id)
    if person is not None:
        require_known_way(ctx, person)
    passkey = _passkeys(ctx).register(person_id, browser, new.credential, new.token, name=name)
    if ctx.caller.needs_second_factor:  # The device has just verified its owner.
        ctx.services.identity.sessions.strengthen(ctx.caller.session, "passkey")
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
    mark = mark_of(request)
    options, token = _passkeys(ctx).begin_sign_in(_browser(mark))
    return set_mark(request, jsonify({"options": options, "token": token}), mark)


@blueprint.post("/sign-in/passkey")
@requires(Action.VISIT)
@takes(Assertion)
def sign_in(ctx: ViewContext, sent: Assertion) -> BaseResponse:
    """Create a session; the response has the path of the `next` page."""
    browser = _browser(value_in(request.environ, BROWSER))
    try:
        person = _passkeys(ctx).sign_in(browser, sent.credential, sent.token)
    except SignInRefused as error:
        if error.person_id:  # Otherwise strangers could fill the log with unknown passkeys.
            subject = f"person:{error.person_id}"
            audit.note(ctx, AuditAction.SESSION_REFUSED, subject, details={"method": "passkey"})
        raise
    target = next_page(sent.next or "")
    return signed_in(ctx, jsonify({"next": target}), person, method="passkey")


def _passkeys(ctx: ViewContext) -> Passkeys:
    passkeys = ctx.services.identity.passkeys
    if passkeys is None:
        raise NotFound("This server has no passkeys.")
    return passkeys


def _signed_in_browser(ctx: ViewContext) -> Browser:
    return _browser(ctx.caller.session)


def _browser(mark: str) -> Browser:
    return Browser(f"{request.scheme}://{request.host}", mark)
