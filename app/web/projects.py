"""All projects of the server: /api/projects, and the page of administrators."""

from __future__ import annotations

from typing import Any

from flask import (
    Blueprint,
    Response,
    jsonify,
    make_response,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug import Response as BaseResponse

from app.access.people import roles_now
from app.access.projects import Member, Project, Projects, parse_limits
from app.core.access import FIRST_PROJECT, Action, CallerKind, Role, parse_role
from app.core.errors import InvalidField, NotAllowed, ProjectInUse, UploadError
from app.core.moments import instant
from app.http.access import requires
from app.http.bodies import form_fields, json_object, member
from app.http.context import ViewContext
from app.http.inviting import add_by_administrator, invite
from app.http.origins import require_own_page

# ---- JSON ----------------------------------------------------------------------------------------

# /api/projects: projects and their members.


api = Blueprint("api_projects", __name__, url_prefix="/api/projects")


@api.get("")
@requires(Action.BELONG)
def index(ctx: ViewContext) -> Response:
    """The caller's projects; all projects for administrators."""
    return jsonify({"projects": [_document(ctx, found) for found in _projects(ctx).of(ctx.caller)]})


@api.post("")
@requires(Action.ADMINISTER)
def make(ctx: ViewContext) -> tuple[Response, int]:
    """Create a project, managed by the person who creates it."""
    caller = ctx.caller
    manager = caller.id if caller.kind is CallerKind.PERSON else None
    name = member(json_object(ctx), "name", kind=str)
    project = _projects(ctx).make(ctx, name, manager=manager)
    role = None if manager is None else Role.MANAGER
    return jsonify({**_document(ctx, project), "role": role}), 201


@api.get("/<project_id>")
@requires(Action.MANAGE)
def show(ctx: ViewContext, project_id: str) -> Response:
    """One project."""
    return jsonify(_document(ctx, _projects(ctx).get(project_id)))


@api.patch("/<project_id>")
@requires(Action.MANAGE)
def change(ctx: ViewContext, project_id: str) -> Response:
    """Rename a project; administrators can also change its quota and retention time."""
    body = json_object(ctx)
    limits = parse_limits(body)
    if limits and not ctx.caller.is_admin:
        raise NotAllowed("Administrators set how much a project may hold, and for how long.")
    name = member(body, "name", kind=str) if "name" in body or not limits else None
    project = _projects(ctx).change(ctx, project_id, name=name, limits=limits)
    return jsonify(_document(ctx, project))


@api.delete("/<project_id>")
@requires(Action.ADMINISTER)
def remove(ctx: ViewContext, project_id: str) -> tuple[str, int]:
    """Delete a project without videos and uploads."""
    _projects(ctx).remove(ctx, project_id)
    return "", 204


@api.get("/<project_id>/members")
@requires(Action.MANAGE)
def members(ctx: ViewContext, project_id: str) -> Response:
    """The members of the project."""
    return jsonify({"members": list(map(member_document, _projects(ctx).members(project_id)))})


@api.post("/<project_id>/members")
@requires(Action.MANAGE)
def add_member(ctx: ViewContext, project_id: str) -> tuple[Response, int]:
    """Create an invitation link, shown only in this response; administrators add accounts.

    Managers cannot see who has an account.
    """
    body = json_object(ctx)
    email, role = member(body, "email", kind=str), parse_role(member(body, "role", kind=str))
    if added := add_by_administrator(ctx, project_id, email, role):
        return jsonify(member_document(added)), 201
    link = invite(ctx, email, project_id=project_id, role=role)
    return jsonify({"invitation": link.url, "warning": link.warning or None}), 202


@api.patch("/<project_id>/members/<person_id>")
@requires(Action.MANAGE)
def change_member(ctx: ViewContext, project_id: str, person_id: str) -> Response:
    """Change a member's role."""
    role = parse_role(member(json_object(ctx), "role", kind=str))
    return jsonify(member_document(_projects(ctx).set_role(ctx, project_id, person_id, role)))


@api.delete("/<project_id>/members/<person_id>")
@requires(Action.MANAGE)
def remove_member(ctx: ViewContext, project_id: str, person_id: str) -> tuple[str, int]:
    """Remove a member from the project."""
    _projects(ctx).remove_member(ctx, project_id, person_id)
    return "", 204


def member_document(found: Member) -> dict[str, Any]:
    """A member of a project; `id` is the person's."""
    return {
        "id": found.person_id,
        "name": found.name,
        "email": found.email,
        "role": found.role,
        "added": instant(found.added_at),
    }


def _document(ctx: ViewContext, project: Project) -> dict[str, Any]:
    """A project; `role` is the caller's, null for an administrator who is not a member."""
    return {
        "id": project.id,
        "name": project.name,
        "role": ctx.caller.roles.get(project.id),
        "created": instant(project.created_at),
        "used_bytes": project.used_bytes,
        "quota_bytes": project.quota_bytes,
        "video_seconds": project.video_seconds,
    }


def _projects(ctx: ViewContext) -> Projects:
    return ctx.services.identity.projects


# ---- pages ---------------------------------------------------------------------------------------

# All projects of the server, for administrators: create, rename, delete.


pages = Blueprint("projects", __name__, url_prefix="/projects")
pages.before_request(lambda: require_own_page(request))


@pages.get("", endpoint="index")
@requires(Action.ADMINISTER)
def index_page(ctx: ViewContext) -> BaseResponse:
    """The list, and a form to create a project."""
    return _page(ctx)


@pages.post("", endpoint="make")
@requires(Action.ADMINISTER)
def make_page(ctx: ViewContext) -> BaseResponse:
    """Create a project, managed by the administrator who creates it."""
    caller, fields = ctx.caller, form_fields(ctx)
    try:
        _projects(ctx).make(ctx, fields.get("name", ""), manager=caller.id or None)
    except InvalidField as error:
        return _page(ctx, fields=fields, problems={"name": str(error)}, status=error.status_hint)
    return _done("made")


@pages.post("/<project_id>/name")
@requires(Action.ADMINISTER)
def rename(ctx: ViewContext, project_id: str) -> BaseResponse:
    """Rename a project."""
    fields = form_fields(ctx)
    try:
        _projects(ctx).change(ctx, project_id, name=fields.get("new_name", ""))
    except InvalidField as error:
        values = {**fields, "project": project_id}
        return _page(
            ctx, fields=values, problems={"new_name": str(error)}, status=error.status_hint
        )
    return _done("renamed")


@pages.post("/<project_id>/remove", endpoint="remove")
@requires(Action.ADMINISTER)
def remove_page(ctx: ViewContext, project_id: str) -> BaseResponse:
    """Delete a project without videos and uploads."""
    try:
        _projects(ctx).remove(ctx, project_id)
    except ProjectInUse as error:
        return _page(ctx, error=error, status=error.status_hint)
    return _done("removed")


DONE = {
    "made": "The project is made. You manage it.",
    "renamed": "The name is saved.",
    "removed": "The project is deleted.",
}


def _done(what: str) -> BaseResponse:
    return redirect(url_for("projects.index", done=what), 303)


def _page(
    ctx: ViewContext, *, error: UploadError | None = None, status: int = 200, **values: Any
) -> BaseResponse:
    caller = ctx.caller
    page = render_template(
        "account/projects.html",
        projects=_projects(ctx).of(caller),
        # The caller's own roles may be cached for some seconds, without a newly created project.
        roles=roles_now(ctx, caller.id),
        first=FIRST_PROJECT,
        done=DONE.get(request.args.get("done", "")),
        error=error,
        **{"fields": {}, "problems": {}, **values},
    )
    return make_response(page, status)
