"""The page of a project, for its managers, and switching between projects."""

from __future__ import annotations

from typing import Any

from flask import request
from werkzeug import Response

from app.access.projects import limits_in_words, require_may_limit, words_of_limits
from app.core import errors
from app.core.access import Action, Caller, parse_role
from app.core.moments import parse_expiry
from app.http.access import PROJECT, requires, who_sees
from app.http.bodies import form_fields
from app.http.context import ViewContext, current_services
from app.http.inviting import add_by_administrator, invite
from app.web.navigation import ROLES
from app.web.pages import form_page, page_blueprint, see_other

blueprint = page_blueprint("project", __name__, url_prefix="/project")

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
    return _project_of(who_sees(request))


def _project_of(caller: Caller) -> str | None:
    is_chosen = PROJECT in request.args or len(caller.roles) > 1
    return (caller.project or None) if is_chosen else None


@blueprint.app_url_defaults
def stay_in_project(endpoint: str, values: dict[str, Any]) -> None:
    """Add the project to the URL of every link from a project's page."""
    name = endpoint.partition(".")[0]
    if name not in PAGES_OF_A_PROJECT or PROJECT in values or endpoint == "project.choose":
        return
    caller = who_sees(request)
    project = _project_of(caller)
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
        ctx.services.identity.projects.change(ctx, project, name=fields.get("name", ""))
    except errors.InvalidField as error:
        return _page(ctx, error, field="title", fields=fields)
    return see_other("project.show")


@blueprint.post("/limits")
@requires(Action.MANAGE)
def limit(ctx: ViewContext) -> Response:
    """Set the project's quota, and how long it keeps videos; for administrators."""
    fields = form_fields(ctx)
    require_may_limit(ctx.caller)
    try:
        limits = limits_in_words(fields.get("quota", ""), fields.get("keep_days", ""))
        ctx.services.identity.projects.change(ctx, ctx.caller.project, limits=limits)
    except errors.InvalidField as error:
        return _page(ctx, error, fields=fields)
    return see_other("project.show")


@blueprint.post("/members")
@requires(Action.MANAGE)
def add_member(ctx: ViewContext) -> Response:
    """Create an invitation link, shown only once; administrators add existing accounts."""
    fields, project = form_fields(ctx), ctx.caller.project
    email = fields.get("email", "")
    try:
        role = parse_role(fields.get("role", ""))
        if add_by_administrator(ctx, project, email, role):
            return see_other("project.show")
        return _page(ctx, invitation=invite(ctx, email, project_id=project, role=role))
    except errors.InvalidField as error:
        return _page(ctx, error, fields=fields)


@blueprint.post("/members/<person_id>")
@requires(Action.MANAGE)
def change_member(ctx: ViewContext, person_id: str) -> Response:
    """Change a member's role, or remove the member."""
    fields, projects, project = form_fields(ctx), ctx.services.identity.projects, ctx.caller.project
    try:
        if fields.get("role") == "none":
            projects.remove_member(ctx, project, person_id)
        else:
            role = parse_role(fields.get("role", ""))
            projects.set_role(ctx, project, person_id, role)
    except errors.LastManager as error:
        return _page(ctx, error)
    if person_id == ctx.caller.id:  # They may no longer be its manager.
        return see_other("pages.index", project=None)
    return see_other("project.show")


@blueprint.post("/invitations/<digest>/withdraw")
@requires(Action.MANAGE)
def withdraw(ctx: ViewContext, digest: str) -> Response:
    """Withdraw an invitation to the project."""
    ctx.services.identity.invitations.withdraw(ctx, digest, ctx.caller.project)
    return see_other("project.show")


@blueprint.get("/keys")
@requires(Action.MANAGE)
def keys(ctx: ViewContext) -> Response:
    """The API keys, and a form to create one."""
    return _keys_page(ctx)


@blueprint.post("/keys")
@requires(Action.MANAGE)
def make_key(ctx: ViewContext) -> Response:
    """Create a key, which is shown only once."""
    fields = form_fields(ctx)
    expires = fields.get("expires", "")  # Seconds, as in `LIFETIMES`, or a time.
    is_number = expires.isdecimal() and expires.isascii()
    try:
        role = parse_role(fields.get("key_role", ""))
        ctx.caller.require_at_most_own(role)
        key, secret = ctx.services.identity.keys.make(
            ctx,
            name=fields.get("key_name", ""),
            role=role,
            expires_at=parse_expiry(float(expires) if is_number else expires or None, ctx.clock()),
        )
    except (errors.InvalidRequest, errors.NotAllowed) as error:
        return _keys_page(ctx, error, field="key_name", fields=fields)
    return _keys_page(ctx, new_key={"name": key.name, "secret": secret})


@blueprint.post("/keys/<key_id>/revoke")
@requires(Action.MANAGE)
def revoke_key(ctx: ViewContext, key_id: str) -> Response:
    """Revoke a key; its active requests end within seconds."""
    ctx.services.identity.keys.revoke(ctx, key_id)
    return see_other("project.keys")


@blueprint.post("/choose")
@requires(Action.HAVE_ACCOUNT)
def choose(ctx: ViewContext) -> Response:
    """Switch this session to another project."""
    caller, project = ctx.caller, form_fields(ctx).get("project", "")
    if project not in caller.roles:
        raise errors.EntryNotFound("There is no such project.")
    ctx.services.identity.sessions.choose_project(ctx, project)
    # Other processes may have the previous one in their cache for a moment.
    return see_other("pages.index", project=project)


def _page(ctx: ViewContext, error: errors.UploadError | None = None, **shown: Any) -> Response:
    identity, project = ctx.services.identity, ctx.caller.project
    found = identity.projects.get(project)
    return form_page(
        "project.html",
        error,
        project=found,
        limits=words_of_limits(found.quota_bytes, found.video_seconds),
        members=identity.projects.members(project),
        waiting=identity.invitations.waiting(project),
        has_mail=identity.mail.is_on,
        **shown,
    )


def _keys_page(ctx: ViewContext, error: errors.UploadError | None = None, **shown: Any) -> Response:
    return form_page(
        "project_keys.html",
        error,
        keys=ctx.services.identity.keys.of_project(ctx),
        now=ctx.clock(),
        lifetimes=LIFETIMES,
        **shown,
    )
