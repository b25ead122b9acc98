"""All projects of the server, for administrators: made, renamed, deleted."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, make_response, redirect, render_template, request, url_for
from werkzeug import Response

from app.access.audit import AuditAction
from app.access.projects import Projects
from app.core.access import FIRST_PROJECT, Action
from app.core.errors import InvalidField, ProjectInUse, UploadError
from app.http.access import requires
from app.http.audited import audited, audited_end
from app.http.bodies import form_fields
from app.http.context import ViewContext
from app.http.origins import require_own_page

blueprint = Blueprint("projects", __name__, url_prefix="/projects")
blueprint.before_request(lambda: require_own_page(request))


@blueprint.get("")
@requires(Action.ADMINISTER)
def index(ctx: ViewContext) -> Response:
    """The list, and a form for another one."""
    return _page(ctx)


@blueprint.post("")
@requires(Action.ADMINISTER)
def make(ctx: ViewContext) -> Response:
    """Make a project, managed by whoever makes it."""
    caller, fields = ctx.caller, form_fields(ctx)
    try:
        project = _projects(ctx).make(fields.get("name", ""), manager=caller.id or None)
    except InvalidField as error:
        return _page(ctx, fields=fields, problems={"name": str(error)}, status=error.status_hint)
    subject = f"project:{project.id}"
    audited(ctx, AuditAction.PROJECT_MADE, subject, project=project.id, name=project.name)
    return _done("made")


@blueprint.post("/<project_id>/name")
@requires(Action.ADMINISTER)
def rename(ctx: ViewContext, project_id: str) -> Response:
    """Give a project another name."""
    fields = form_fields(ctx)
    try:
        project = _projects(ctx).rename(project_id, fields.get("new_name", ""))
    except InvalidField as error:
        values = {**fields, "project": project_id}
        return _page(
            ctx, fields=values, problems={"new_name": str(error)}, status=error.status_hint
        )
    audited(ctx, AuditAction.SETTINGS_CHANGED, f"project:{project_id}", name=project.name)
    return _done("renamed")


@blueprint.post("/<project_id>/remove")
@requires(Action.ADMINISTER)
def remove(ctx: ViewContext, project_id: str) -> Response:
    """Delete a project without videos and uploads."""
    try:
        audited_end(ctx, *_projects(ctx).remove(project_id))
    except ProjectInUse as error:
        return _page(ctx, error=error, status=error.status_hint)
    return _done("removed")


DONE = {
    "made": "The project is made. You manage it.",
    "renamed": "The name is saved.",
    "removed": "The project is deleted.",
}


def _projects(ctx: ViewContext) -> Projects:
    return ctx.services.identity.projects


def _done(what: str) -> Response:
    return redirect(url_for("projects.index", done=what), 303)


def _page(
    ctx: ViewContext, *, error: UploadError | None = None, status: int = 200, **values: Any
) -> Response:
    caller = ctx.caller
    page = render_template(
        "account/projects.html",
        projects=_projects(ctx).of(caller),
        # The caller's own roles may be some seconds old, and a project just made is missing there.
        roles=ctx.services.identity.people.roles(caller.id),
        first=FIRST_PROJECT,
        done=DONE.get(request.args.get("done", "")),
        error=error,
        **{"fields": {}, "problems": {}, **values},
    )
    return make_response(page, status)
