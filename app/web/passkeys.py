"""Passkeys: registered on the account page, and used on the sign-in page.

The scripts of both pages exchange JSON with these views, each in two steps.
"""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify, request
from msgspec import Struct
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import NotFound

from app.access.passkeys import Passkeys
from app.access.people import current_person
from app.access.sessions import require_known_way
from app.access.signing import Browser
from app.core.access import Action
from app.http import session_cookie
from app.http.access import requires
from app.http.bodies import json_body, takes
from app.http.context import ViewContext
from app.web.pages import page_blueprint, see_other

blueprint = page_blueprint("passkeys", __name__)


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
    identity, person = ctx.services.identity, current_person(ctx)
    require_known_way(ctx, person)
    if not identity.sessions.has_just_begun(ctx):
        identity.sign_in.confirm(person, json_body(ctx, Confirmation).password or "")
    options, token = _passkeys(ctx).begin_registration(person, _browser(ctx.caller.session))
    return jsonify({"options": options, "token": token})


@blueprint.post("/account/passkeys")
@requires(Action.SECURE_ACCOUNT)
@takes(Registration)
def register(ctx: ViewContext, new: Registration) -> tuple[Response, int]:
    """Store the `credential` that a device created, under a `name`."""
    require_known_way(ctx, current_person(ctx))
    browser = _browser(ctx.caller.session)
    passkey = _passkeys(ctx).register(ctx, browser, new.credential, new.token, name=new.name)
    return jsonify({"id": passkey.id, "name": passkey.name}), 201


@blueprint.post("/account/passkeys/<passkey_id>/remove")
@requires(Action.HAVE_ACCOUNT)
def remove(ctx: ViewContext, passkey_id: str) -> BaseResponse:
    """Delete one of the person's own passkeys; for the form of the account page."""
    _passkeys(ctx).remove(ctx, passkey_id)
    return see_other("account.show", done="passkey-removed")


@blueprint.post("/sign-in/passkey/options")
@requires(Action.VISIT)
def begin_sign_in(ctx: ViewContext) -> BaseResponse:
    """Options for an assertion by a passkey, and the token to send with it."""
    mark = session_cookie.mark_of()
    options, token = _passkeys(ctx).begin_sign_in(_browser(mark))
    return session_cookie.set_mark(jsonify({"options": options, "token": token}), mark)


@blueprint.post("/sign-in/passkey")
@requires(Action.VISIT)
@takes(Assertion)
def sign_in(ctx: ViewContext, sent: Assertion) -> BaseResponse:
    """Create a session; the response has the path of the `next` page."""
    mark = session_cookie.value_in(request.environ, session_cookie.BROWSER)
    person = _passkeys(ctx).sign_in(ctx, _browser(mark), sent.credential, sent.token)
    target = session_cookie.next_page(sent.next or "")
    return session_cookie.begin_session(ctx, jsonify({"next": target}), person, method="passkey")


def _passkeys(ctx: ViewContext) -> Passkeys:
    passkeys = ctx.services.identity.passkeys
    if passkeys is None:
        raise NotFound("This server has no passkeys.")
    return passkeys


def _browser(mark: str) -> Browser:
    return Browser(f"{request.scheme}://{request.host}", mark)
