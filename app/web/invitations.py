"""Pages of single-use links: to set up the server, to join it, to choose a new password."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response

from app.access.invitations import Invitation, Purpose
from app.access.passwords import MIN_CHARACTERS
from app.access.people import Person, current_person, find_person
from app.core.access import Action, Caller, CallerKind, scope_of
from app.core.errors import InvalidField
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.origins import require_own_page
from app.http.session_cookie import begin_session
from app.web.second_factor import signed_in_or_asked

blueprint = Blueprint("invitations", __name__)
blueprint.before_request(lambda: require_own_page(request))


@blueprint.route("/set-up/<code>", methods=["GET", "POST"])
@requires(Action.VISIT)
def set_up(ctx: ViewContext, code: str) -> Response:
    """Create the first administrator."""
    return _answer(ctx, code, Purpose.SET_UP)


@blueprint.route("/join/<code>", methods=["GET", "POST"])
@requires(Action.VISIT)
def join(ctx: ViewContext, code: str) -> Response:
    """Create an account, or add the signed-in person's account to the project.

    If signed out, the form does not reveal whether the address has an account: the inviting person
    could open it. The response to the form has to: a second account cannot be created.
    """
    invitation = ctx.services.identity.invitations.find(code, Purpose.JOIN)
    caller = ctx.caller
    if caller.kind is CallerKind.PERSON:
        return _join_as(ctx, caller, invitation, code)
    return _answer(ctx, code, Purpose.JOIN)


@blueprint.route("/reset/<code>", methods=["GET", "POST"])
@requires(Action.VISIT)
def reset(ctx: ViewContext, code: str) -> Response:
    """Choose a new password."""
    return _answer(ctx, code, Purpose.RESET)


def _join_as(ctx: ViewContext, caller: Caller, invitation: Invitation, code: str) -> Response:
    """Add the signed-in person to the project, if the page was shown to the same person."""
    identity = ctx.services.identity
    if request.method != "POST" or form_fields(ctx).get("person") != caller.id:
        return _asked(ctx, invitation)
    you = current_person(ctx)
    scope_of(caller, Action.HAVE_ACCOUNT)  # Raises if a second factor must be set up first.
    try:
        identity.invitations.accept(ctx, code, you)
    except InvalidField as error:
        return _asked(ctx, invitation, error)
    identity.sessions.choose_project(ctx, invitation.project_id or "")
    # Another process may have the project that was shown last in its cache for a moment.
    joined = invitation.project_id if caller.roles else None
    return redirect(url_for("pages.index", project=joined), 303)


def _answer(ctx: ViewContext, code: str, purpose: Purpose) -> Response:
    invitation = ctx.services.identity.invitations.find(code, purpose)
    if request.method != "POST":
        return _page(ctx, invitation, {})
    fields = form_fields(ctx)
    try:
        person = _accept(ctx, code, invitation, fields)
    except InvalidField as error:
        return _page(ctx, invitation, fields, error)
    # Without passwords, the person needs a passkey before this session ends.
    target = url_for("pages.index" if ctx.settings.has_passwords else "account.show")
    if purpose is Purpose.RESET:  # A reset link is not a second factor.
        return signed_in_or_asked(ctx, person, target, method="link")
    return begin_session(ctx, redirect(target, 303), person, method="link")


def _accept(
    ctx: ViewContext, code: str, invitation: Invitation, fields: Mapping[str, str]
) -> Person:
    invitations, purpose = ctx.services.identity.invitations, invitation.purpose
    name, password = fields.get("name", ""), fields.get("password", "")
    if purpose is Purpose.RESET:
        return invitations.choose_password(ctx, code, password)
    if purpose is Purpose.JOIN:
        return invitations.join(ctx, code, name=name, password=password)
    email = fields.get("email", "")
    return invitations.set_up(ctx, code, email=email, name=name, password=password)


def _asked(ctx: ViewContext, invitation: Invitation, error: InvalidField | None = None) -> Response:
    """A page that shows who is signed in and who was invited, and asks who should join."""
    identity = ctx.services.identity
    project = invitation.project_id
    page = render_template(
        "account/join_project.html",
        invitation=invitation,
        project=None if project is None else identity.projects.get(project),
        you=find_person(ctx, ctx.caller.id),
        error=error,
    )
    return _secret(page, error)


def _page(
    ctx: ViewContext,
    invitation: Invitation,
    fields: Mapping[str, str],
    error: InvalidField | None = None,
) -> Response:
    identity = ctx.services.identity
    person = find_person(ctx, invitation.person_id) if invitation.person_id else None
    page = render_template(
        f"account/{invitation.purpose}.html",
        invitation=invitation,
        person=person,
        fields=fields,
        problems={error.field: str(error)} if error else {},
        has_passwords=ctx.settings.has_passwords,
        has_passkeys=identity.passkeys is not None,
        min_characters=MIN_CHARACTERS,
    )
    return _secret(page, error)


def _secret(page: str, error: InvalidField | None) -> Response:
    response = make_response(page, error.status_hint if error else 200)
    response.headers["Referrer-Policy"] = "no-referrer"  # The URL is a secret.
    return response
