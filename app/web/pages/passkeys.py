"""Passkeys: registered on the account page, and used on the page to sign in.

The scripts of both pages send and receive JSON here, each time in two steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, Response, jsonify, redirect, request, url_for
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import NotFound

from app.access.single_use import Browser
from app.core.access import Action
from app.core.audit import AuditAction
from app.core.errors import SignInRefused
from app.core.names import clean_name
from app.http.access import requires
from app.http.audited import audited
from app.http.bodies import json_object, member
from app.http.context import current_caller, current_services
from app.http.origins import require_own_page
from app.http.session_cookie import BROWSER, mark_of, set_mark, value_in
from app.http.signing_in import confirm, must_confirm, next_page, require_known_way, signed_in

if TYPE_CHECKING:
    from app.access.passkeys import Passkeys

blueprint = Blueprint("passkeys", __name__)
blueprint.before_request(lambda: require_own_page(request))


@blueprint.post("/account/passkeys/options")
@requires(Action.SECURE_ACCOUNT)
def begin_registration() -> Response:
    """What a device needs to make a passkey, and the token to send with what it made.

    Wants the `password` some time after the person has signed in.
    """
    identity = current_services().identity
    person = identity.people.find(current_caller().id)
    if person is not None:
        require_known_way(person)
        if must_confirm(person):
            confirm(person, member(json_object(), "password", kind=str, default=""))
    options, token = _passkeys().begin_registration(current_caller().id, _signed_in_browser())
    return jsonify({"options": options, "token": token})


@blueprint.post("/account/passkeys")
@requires(Action.SECURE_ACCOUNT)
def register() -> tuple[Response, int]:
    """Keep the `credential` that a device has made under a `name`."""
    body, browser = json_object(), _signed_in_browser()
    name = clean_name(member(body, "name", kind=str))
    credential = member(body, "credential", kind=dict)
    token = member(body, "token", kind=str)
    person_id = current_caller().id
    person = current_services().identity.people.find(person_id)
    if person is not None:
        require_known_way(person)
    passkey = _passkeys().register(person_id, browser, credential, token, name=name)
    if current_caller().needs_second_factor:  # The device has just verified its owner.
        current_services().identity.sessions.strengthen(current_caller().session, "passkey")
    audited(AuditAction.PASSKEY_ADDED, f"passkey:{passkey.id}", name=passkey.name)
    return jsonify({"id": passkey.id, "name": passkey.name}), 201


@blueprint.post("/account/passkeys/<passkey_id>/remove")
@requires(Action.HAVE_ACCOUNT)
def remove(passkey_id: str) -> BaseResponse:
    """Delete a passkey of one's own; the form of the account page."""
    passkey = _passkeys().remove(current_caller().id, passkey_id)
    if passkey is not None:
        audited(AuditAction.PASSKEY_REMOVED, f"passkey:{passkey.id}", name=passkey.name)
    return redirect(url_for("account.show", done="passkey-removed"), 303)


@blueprint.post("/sign-in/passkey/options")
@requires(Action.VISIT)
def begin_sign_in() -> BaseResponse:
    """What a device needs to answer, and the token to send with the answer."""
    mark = mark_of(request)
    options, token = _passkeys().begin_sign_in(_browser(mark))
    return set_mark(request, jsonify({"options": options, "token": token}), mark)


@blueprint.post("/sign-in/passkey")
@requires(Action.VISIT)
def sign_in() -> BaseResponse:
    """Begin a session; answers with the path of the `next` page."""
    body, browser = json_object(), _browser(value_in(request.environ, BROWSER))
    credential, token = member(body, "credential", kind=dict), member(body, "token", kind=str)
    try:
        person = _passkeys().sign_in(browser, credential, token)
    except SignInRefused as error:
        if error.person_id:  # Strangers could fill the log with passkeys of nobody.
            subject = f"person:{error.person_id}"
            audited(AuditAction.SESSION_REFUSED, subject, method="passkey")
        raise
    target = next_page(member(body, "next", kind=str, default=""))
    return signed_in(jsonify({"next": target}), person, method="passkey")


def _passkeys() -> Passkeys:
    passkeys = current_services().identity.passkeys
    if passkeys is None:
        raise NotFound("This server has no passkeys.")
    return passkeys


def _signed_in_browser() -> Browser:
    return _browser(current_caller().session)


def _browser(mark: str) -> Browser:
    return Browser(f"{request.scheme}://{request.host}", mark)
