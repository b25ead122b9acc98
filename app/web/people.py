"""All people with an account, for administrators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response

from app.access.people import Person, all_people, all_roles, find_person
from app.core.access import FIRST_PROJECT, MEMBERS, Action, Role
from app.core.errors import EntryNotFound, InvalidField, LastAdministrator, UploadError
from app.http.access import requires
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.inviting import NewLink, count_mail, invite, send_link
from app.http.origins import require_own_page
from app.http.proxy import absolute_url

blueprint = Blueprint("people", __name__, url_prefix="/people")
blueprint.before_request(lambda: require_own_page(request))

NO_ROLE = ""


@blueprint.get("")
@requires(Action.ADMINISTER)
def index(ctx: ViewContext) -> Response:
    """The list of people."""
    return _page(ctx)


@blueprint.post("/invitations")
@requires(Action.ADMINISTER)
def add_invitation(ctx: ViewContext) -> Response:
    """Create an invitation link, and send it if mail is configured."""
    fields = form_fields(ctx)
    role, identity = fields.get("role", NO_ROLE), ctx.services.identity
    chosen = fields.get("project", ctx.caller.project or FIRST_PROJECT)
    if not chosen:
        role = NO_ROLE  # Only an account, without a project.
    project = identity.projects.get(chosen).id if role else None
    try:
        link = invite(ctx, fields.get("email", ""), project_id=project, role=_role(role))
    except InvalidField as error:
        return _page(
            ctx, fields=fields, problems={error.field: str(error)}, status=error.status_hint
        )
    return _page(ctx, link=link)


@blueprint.post("/invitations/<digest>/withdraw")
@requires(Action.ADMINISTER)
def withdraw(ctx: ViewContext, digest: str) -> Response:
    """Withdraw an invitation."""
    ctx.services.identity.invitations.withdraw(ctx, digest)
    return redirect(url_for("people.index"), 303)


@blueprint.post("/<person_id>/reset-link")
@requires(Action.ADMINISTER)
def make_reset_link(ctx: ViewContext, person_id: str) -> Response:
    """Create a password reset link, and send it if mail is configured."""
    person = _person(ctx, person_id)
    count_mail(ctx)
    code = ctx.services.identity.invitations.to_reset(ctx, person)
    url = absolute_url("invitations.reset", code=code)
    text = f"Open this link within a day to choose a new password for Sluice:\n\n{url}\n"
    return _page(
        ctx, link=send_link(ctx, person.email, url, subject="A new password for Sluice", text=text)
    )


@blueprint.post("/<person_id>")
@requires(Action.ADMINISTER)
def change(ctx: ViewContext, person_id: str) -> Response:
    """Block or unblock a person, grant or revoke administrator rights, or change their address."""
    person, identity = _person(ctx, person_id), ctx.services.identity
    accounts, fields = identity.accounts, form_fields(ctx)
    changes: dict[str, Callable[[], object]] = {
        "block": lambda: accounts.block(ctx, person),
        "unblock": lambda: accounts.unblock(ctx, person),
        "make_admin": lambda: accounts.make_admin(ctx, person),
        "make_member": lambda: accounts.end_admin(ctx, person),
        "email": lambda: accounts.change_email(ctx, person, fields.get("new_email", "")),
        "remove_codes": lambda: identity.second_factors.remove(ctx, person),
        "delete": lambda: accounts.delete(ctx, person),
    }
    wanted = fields.get("change", "")
    if wanted not in changes:
        raise InvalidField("The change is not one that this page makes.", field="change")
    try:
        changes[wanted]()
    except LastAdministrator as error:
        return _page(ctx, error=error, status=error.status_hint)
    except InvalidField as error:
        values = {**fields, "person": person.id}
        return _page(
            ctx, fields=values, problems={"new_email": str(error)}, status=error.status_hint
        )
    return redirect(url_for("people.index"), 303)


def _person(ctx: ViewContext, person_id: str) -> Person:
    person = find_person(ctx, person_id)
    if person is None:
        raise EntryNotFound("There is no such person.")
    return person


def _role(text: str) -> Role | None:
    if text == NO_ROLE:
        return None
    if text not in set(MEMBERS):
        raise InvalidField("There is no such role.", field="role")
    return Role(text)


def _page(
    ctx: ViewContext,
    *,
    link: NewLink | None = None,
    error: UploadError | None = None,
    status: int = 200,
    **values: Any,
) -> Response:
    identity, caller = ctx.services.identity, ctx.caller
    page = render_template(
        "account/people.html",
        people=all_people(ctx),
        roles_of=all_roles(ctx),
        project_names={project.id: project.name for project in identity.projects.of(caller)},
        with_codes=identity.second_factors.people(),
        invitations=identity.invitations.waiting(),
        current_project=caller.project,
        link=link,
        error=error,
        has_mail=identity.mail.is_on,
        **{"fields": {}, "problems": {}, **values},
    )
    return make_response(page, status)
