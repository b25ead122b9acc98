"""The page of a project, for its managers, and switching between projects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response

from app.access.projects import limits_in_words, words_of_limits
from app.access.services import IdentityServices
from app.core import errors
from app.core.access import Action, parse_role
from app.core.moments import parse_expiry
from app.http.access import PROJECT, requires, who_sees
from app.http.bodies import form_fields
from app.http.context import ViewContext, current_services
from app.http.inviting import add_by_administrator, invite
from app.http.origins import require_own_page
from app.web.navigation import ROLES

blueprint = Blueprint("project", __name__, url_prefix="/project")
blueprint.before_request(lambda: require_own_page(request))

blueprint.app_context_processor(
    lambda: {
        "projects_of": current_services().identity.projects.entered,
        "kept_project": kept_project(),
        "ROLES": ROLES,
        "role_words": dict(ROLES),
    }
)

PAGES_OF_A_PROJECT = frozenset({"pages", "links", "upload_links", "webhooks", "audit", "project"})
"""Blueprints whose pages show one project, and whose links stay in it."""

FOR_MEMBERS = frozenset({"pages", "links", "upload_links"})
"""Blueprints whose pages administrators see only in projects they are members of."""

DAY_SECONDS = 24 * 3600

LIFETIMES = (
    ("", "never"),
    (str(30 * DAY_SECONDS), "in 30 days"),
    (str(90 * DAY_SECONDS), "in 90 days"),
    (str(365 * DAY_SECONDS), "in a year"),
)
"""Lifetimes to choose from for a key, in seconds."""


def kept_project() -> str | None:
    """The project for the links and forms of this page; None if there is only one.

    The URL names it because another tab may choose another project, and administrators manage
    projects they are not members of.
    """
    caller = who_sees(request)
    is_chosen = PROJECT in request.args or len(caller.roles) > 1
    return (caller.project or None) if is_chosen else None


@blueprint.app_url_defaults
def stay_in_project(endpoint: str, values: dict[str, Any]) -> None:
    """Add the project to the URL of every link from a project's page."""
    name = endpoint.partition(".")[0]
    if name not in PAGES_OF_A_PROJECT or PROJECT in values or endpoint == "project.choose":
        return
    caller, project = who_sees(request), kept_project()
    is_hidden = name in FOR_MEMBERS and project not in caller.roles
    # Administrators see the audit log of the whole server, unless they choose a project there.
    is_whole_log = endpoint == "audit.index" and caller.is_admin
    if not is_hidden and not is_whole_log:
        values[PROJECT] = project


@blueprint.get("")
@requires(Action.MANAGE)
def show(ctx: ViewContext) -> Response:
    """The project page: members, storage and name."""
    return _page(ctx)


@blueprint.post("/name")
@requires(Action.MANAGE)
def rename(ctx: ViewContext) -> Response:
    """Rename the project."""
    fields, project = form_fields(ctx), ctx.caller.project
    try:
        _identity(ctx).projects.change(ctx, project, name=fields.get("name", ""))
    except errors.InvalidField as error:
        return _page(ctx, fields=fields, problems={"title": str(error)}, status=400)
    return _back()


@blueprint.post("/limits")
@requires(Action.MANAGE)
def limit(ctx: ViewContext) -> Response:
    """Set the project's quota, and how long it keeps videos; for administrators."""
    caller, fields = ctx.caller, form_fields(ctx)
    if not caller.is_admin:
        raise errors.NotAllowed("Administrators set how much a project may hold, and for how long.")
    try:
        limits = limits_in_words(fields.get("quota", ""), fields.get("keep_days", ""))
    except errors.InvalidField as error:
        return _page(ctx, fields=fields, problems={error.field: str(error)}, status=400)
    _identity(ctx).projects.change(ctx, caller.project, limits=limits)
    return _back()


@blueprint.post("/members")
@requires(Action.MANAGE)
def add_member(ctx: ViewContext) -> Response:
    """Create an invitation link, shown only once; administrators add existing accounts."""
    fields, project = form_fields(ctx), ctx.caller.project
    email = fields.get("email", "")
    try:
        role = parse_role(fields.get("role", ""))
        if add_by_administrator(ctx, project, email, role):
            return _back()
        return _page(ctx, invitation=invite(ctx, email, project_id=project, role=role))
    except errors.InvalidField as error:
        return _page(ctx, fields=fields, problems={error.field: str(error)}, status=400)


@blueprint.post("/members/<person_id>")
@requires(Action.MANAGE)
def change_member(ctx: ViewContext, person_id: str) -> Response:
    """Change a member's role, or remove the member."""
    fields, projects, project = form_fields(ctx), _identity(ctx).projects, ctx.caller.project
    try:
        if fields.get("role") == "none":
            projects.remove_member(ctx, project, person_id)
        else:
            role = parse_role(fields.get("role", ""))
            projects.set_role(ctx, project, person_id, role)
    except errors.LastManager as error:
        return _page(ctx, error=error, status=error.status_hint)
    if person_id == ctx.caller.id:  # They may no longer be its manager.
        return redirect(url_for("pages.index", project=None), 303)
    return _back()


@blueprint.post("/invitations/<digest>/withdraw")
@requires(Action.MANAGE)
def withdraw(ctx: ViewContext, digest: str) -> Response:
    """Withdraw an invitation to the project."""
    _identity(ctx).invitations.withdraw(ctx, digest, ctx.caller.project)
    return _back()


@blueprint.get("/keys")
@requires(Action.MANAGE)
def keys(ctx: ViewContext) -> Response:
    """The API keys, and a form to create one."""
    return _keys_page(ctx)


@blueprint.post("/keys")
@requires(Action.MANAGE)
def make_key(ctx: ViewContext) -> Response:
    """Create a key, which is shown only once."""
    fields, caller = form_fields(ctx), ctx.caller
    try:
        role = parse_role(fields.get("key_role", ""))
        caller.require_at_most_own(role)
        key, secret = _identity(ctx).keys.make(
            ctx,
            name=fields.get("key_name", ""),
            role=role,
            expires_at=parse_expiry(_seconds(fields.get("expires", "")), datetime.now(UTC)),
        )
    except (errors.InvalidRequest, errors.NotAllowed) as error:
        problems = {"key_name": str(error)}
        return _keys_page(ctx, fields=fields, problems=problems, status=error.status_hint)
    return _keys_page(ctx, new_key={"name": key.name, "secret": secret})


@blueprint.post("/keys/<key_id>/revoke")
@requires(Action.MANAGE)
def revoke_key(ctx: ViewContext, key_id: str) -> Response:
    """Revoke a key; its active requests end within seconds."""
    _identity(ctx).keys.revoke(ctx, key_id)
    return redirect(url_for("project.keys"), 303)


@blueprint.post("/choose")
@requires(Action.HAVE_ACCOUNT)
def choose(ctx: ViewContext) -> Response:
    """Switch this session to another project."""
    caller, project = ctx.caller, form_fields(ctx).get("project", "")
    if project not in caller.roles:
        raise errors.EntryNotFound("There is no such project.")
    _identity(ctx).sessions.choose_project(ctx, project)
    # Other processes may have the previous one in their cache for a moment.
    return redirect(url_for("pages.index", project=project), 303)


def _identity(ctx: ViewContext) -> IdentityServices:
    return ctx.services.identity


def _seconds(text: str) -> float | str | None:
    return float(text) if text.isdecimal() and text.isascii() else text or None


def _back() -> Response:
    return redirect(url_for("project.show"), 303)


def _page(
    ctx: ViewContext, *, error: errors.UploadError | None = None, status: int = 200, **values: Any
) -> Response:
    identity, project = _identity(ctx), ctx.caller.project
    found = identity.projects.get(project)
    page = render_template(
        "project.html",
        project=found,
        limits=words_of_limits(found.quota_bytes, found.video_seconds),
        members=identity.projects.members(project),
        waiting=identity.invitations.waiting(project),
        has_mail=identity.mail.is_on,
        error=error,
        **{"fields": {}, "problems": {}, **values},
    )
    return make_response(page, status)


def _keys_page(ctx: ViewContext, *, status: int = 200, **values: Any) -> Response:
    page = render_template(
        "project_keys.html",
        keys=_identity(ctx).keys.of_project(ctx),
        now=datetime.now(UTC),
        lifetimes=LIFETIMES,
        **{"fields": {}, "problems": {}, **values},
    )
    return make_response(page, status)
