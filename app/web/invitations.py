"""Pages of single-use links: to set up the server, to join it, to choose a new password."""

from __future__ import annotations

from collections.abc import Mapping

from flask import redirect, request, url_for
from werkzeug import Response

from app.access.invitations import Invitation, Purpose
from app.access.passwords import MIN_CHARACTERS
from app.access.people import current_person, find_person
from app.core.access import Action, Caller, CallerKind, scope_of
from app.core.errors import InvalidField
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.session_cookie import begin_session
from app.web.pages import form_page, page_blueprint, see_other
from app.web.second_factor import signed_in_or_asked

blueprint = page_blueprint("invitations", __name__)


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
    return see_other("pages.index", project=joined)


def _answer(ctx: ViewContext, code: str, purpose: Purpose) -> Response:
    invitation = ctx.services.identity.invitations.find(code, purpose)
    if request.method != "POST":
        return _page(ctx, invitation)
    fields, invitations = form_fields(ctx), ctx.services.identity.invitations
    name, password = fields.get("name", ""), fields.get("password", "")
    try:
        if purpose is Purpose.RESET:
            person = invitations.choose_password(ctx, code, password)
        elif purpose is Purpose.JOIN:
            person = invitations.join(ctx, code, name=name, password=password)
        else:
            email = fields.get("email", "")
            person = invitations.set_up(ctx, code, email=email, name=name, password=password)
    except InvalidField as error:
        return _page(ctx, invitation, error, fields)
    # Without passwords, the person needs a passkey before this session ends.
    target = url_for("pages.index" if ctx.settings.has_passwords else "account.show")
    if purpose is Purpose.RESET:  # A reset link is not a second factor.
        return signed_in_or_asked(ctx, person, target, method="link")
    return begin_session(ctx, redirect(target, 303), person, method="link")


def _asked(ctx: ViewContext, invitation: Invitation, error: InvalidField | None = None) -> Response:
    """A page that shows who is signed in and who was invited, and asks who should join."""
    project = invitation.project_id
    page = form_page(
        "account/join_project.html",
        error,
        invitation=invitation,
        project=None if project is None else ctx.services.identity.projects.get(project),
        you=find_person(ctx, ctx.caller.id),
        error=error,
    )
    return _secret(page)


def _page(
    ctx: ViewContext,
    invitation: Invitation,
    error: InvalidField | None = None,
    fields: Mapping[str, str] | None = None,
) -> Response:
    page = form_page(
        f"account/{invitation.purpose}.html",
        error,
        invitation=invitation,
        person=find_person(ctx, invitation.person_id) if invitation.person_id else None,
        fields=fields or {},
        has_passwords=ctx.settings.has_passwords,
        has_passkeys=ctx.services.identity.passkeys is not None,
        min_characters=MIN_CHARACTERS,
    )
    return _secret(page)


def _secret(response: Response) -> Response:
    response.headers["Referrer-Policy"] = "no-referrer"  # The URL is a secret.
    return response
