"""All projects of the server: /api/projects, and the page of administrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypedDict

from flask import Blueprint, Response, jsonify, request
from msgspec import UNSET, Struct, UnsetType
from werkzeug import Response as BaseResponse

from app.access import projects
from app.access.people import roles_now
from app.access.projects import MAX_QUOTA_BYTES, MAX_VIDEO_SECONDS, Member, Project, Projects
from app.core import errors
from app.core.access import FIRST_PROJECT, Action, CallerKind, Role, parse_role
from app.core.json_types import Count, Instant, MemberRole, Name, Url, keywords
from app.core.moments import instant
from app.http.access import requires
from app.http.bodies import form_fields, takes
from app.http.context import ViewContext
from app.http.inviting import add_by_administrator, invite
from app.http.openapi import describes
from app.web.pages import form_page, page_blueprint, see_other

# ---- JSON ----------------------------------------------------------------------------------------

# /api/projects: projects and their members.


api = Blueprint("api_projects", __name__, url_prefix="/api/projects")


class Named(Struct):
    """The name of a new project."""

    name: Name


class ProjectChanges(Struct):
    """Changes of a project. Members that are not sent stay as they are."""

    KEYWORDS: ClassVar[Mapping[str, Any]] = {"minProperties": 1}

    name: Name | UnsetType = UNSET
    quota_bytes: Annotated[
        Any, keywords(type=["integer", "null"], minimum=0, maximum=MAX_QUOTA_BYTES)
    ] = UNSET
    """Null for no limit."""
    video_seconds: Annotated[
        Any, keywords(type=["number", "null"], exclusiveMinimum=0, maximum=MAX_VIDEO_SECONDS)
    ] = UNSET
    """Null to keep videos for ever."""


class ProjectDocument(TypedDict):
    """A project."""

    id: str
    name: Name
    role: MemberRole | None
    """Yours; null for an administrator who is not a member."""
    created: Instant
    used_bytes: Count
    """The length of all videos and unfinished uploads together."""
    quota_bytes: int | None
    """Null for no limit."""
    video_seconds: float | None
    """How long after they were published videos are deleted; null for never."""


class ProjectsDocument(TypedDict):
    """The caller's projects; all projects for administrators."""

    projects: list[ProjectDocument]


class NewRole(Struct):
    """The new role of a member."""

    role: MemberRole


class NewMember(Struct):
    """A person to invite.

    Example:
        {"email": "ben@example.org", "role": "editor"}
    """

    email: str
    role: MemberRole


class MemberDocument(TypedDict):
    """A member of a project."""

    id: str
    """The person's."""
    name: str
    email: str
    role: MemberRole
    added: Instant


class MembersDocument(TypedDict):
    """The members, by name."""

    members: list[MemberDocument]


class InvitationDocument(TypedDict):
    """An invitation. The link is shown only here.

    The first person to use it becomes a member, with an account or a new one.
    """

    invitation: Url
    warning: str | None
    """What is odd about the address, such as letters of several alphabets."""


@api.get("")
@requires(Action.BELONG)
@describes("listProjects", {200: ProjectsDocument})
def index(ctx: ViewContext) -> Response:
    """List the projects you may enter; administrators may enter all."""
    return jsonify({"projects": [_document(ctx, found) for found in _projects(ctx).of(ctx.caller)]})


@api.post("")
@requires(Action.ADMINISTER)
@takes(Named)
@describes("makeProject", {201: ProjectDocument}, errors.InvalidField)
def make(ctx: ViewContext, new: Named) -> tuple[Response, int]:
    """Create a project, managed by the person who creates it; for administrators."""
    caller = ctx.caller
    manager = caller.id if caller.kind is CallerKind.PERSON else None
    project = _projects(ctx).make(ctx, new.name, manager=manager)
    role = None if manager is None else Role.MANAGER
    return jsonify({**_document(ctx, project), "role": role}), 201


@api.get("/<project_id>")
@requires(Action.MANAGE)
@describes("showProject", {200: ProjectDocument})
def show(ctx: ViewContext, project_id: str) -> Response:
    """Get a project."""
    return jsonify(_document(ctx, _projects(ctx).get(project_id)))


@api.patch("/<project_id>")
@requires(Action.MANAGE)
@takes(ProjectChanges)
@describes("changeProject", {200: ProjectDocument}, errors.InvalidField)
def change(ctx: ViewContext, sent: ProjectChanges, project_id: str) -> Response:
    """Rename a project; administrators can also change its quota and retention time."""
    limits = projects.parse_limits(
        {
            name: value
            for name in ("quota_bytes", "video_seconds")
            if (value := getattr(sent, name)) is not UNSET
        }
    )
    if limits:
        projects.require_may_limit(ctx.caller)
    if sent.name is UNSET and not limits:
        raise errors.InvalidRequest("The member name is missing.")
    name = None if sent.name is UNSET else sent.name
    project = _projects(ctx).change(ctx, project_id, name=name, limits=limits)
    return jsonify(_document(ctx, project))


@api.delete("/<project_id>")
@requires(Action.ADMINISTER)
@describes("deleteProject", {204: "Deleted, with its keys and links."}, errors.ProjectInUse)
def remove(ctx: ViewContext, project_id: str) -> tuple[str, int]:
    """Delete a project without videos and uploads; for administrators."""
    _projects(ctx).remove(ctx, project_id)
    return "", 204


@api.get("/<project_id>/members")
@requires(Action.MANAGE)
@describes("listMembers", {200: MembersDocument})
def members(ctx: ViewContext, project_id: str) -> Response:
    """List the members of a project."""
    return jsonify({"members": list(map(member_document, _projects(ctx).members(project_id)))})


@api.post("/<project_id>/members")
@requires(Action.MANAGE)
@takes(NewMember)
@describes(
    "addMember",
    {201: MemberDocument, 202: InvitationDocument},
    *(errors.InvalidField, errors.TooManyRequests),
)
def add_member(ctx: ViewContext, new: NewMember, project_id: str) -> tuple[Response, int]:
    """Invite a person to a project.

    Only administrators of the server add people who have an account without asking them. For
    others, the response does not reveal who has one; the owner of an account with this address
    also finds the invitation on the account page. 429: the caller or the project has had too much
    mail sent.
    """
    role = parse_role(new.role)
    if added := add_by_administrator(ctx, project_id, new.email, role):
        return jsonify(member_document(added)), 201
    link = invite(ctx, new.email, project_id=project_id, role=role)
    return jsonify({"invitation": link.url, "warning": link.warning or None}), 202


@api.patch("/<project_id>/members/<person_id>")
@requires(Action.MANAGE)
@takes(NewRole)
@describes("changeMember", {200: MemberDocument}, errors.InvalidField, errors.LastManager)
def change_member(ctx: ViewContext, new: NewRole, project_id: str, person_id: str) -> Response:
    """Change a member's role."""
    role = parse_role(new.role)
    return jsonify(member_document(_projects(ctx).set_role(ctx, project_id, person_id, role)))


@api.delete("/<project_id>/members/<person_id>")
@requires(Action.MANAGE)
@describes("removeMember", {204: "Removed."}, errors.LastManager)
def remove_member(ctx: ViewContext, project_id: str, person_id: str) -> tuple[str, int]:
    """Remove a member from the project."""
    _projects(ctx).remove_member(ctx, project_id, person_id)
    return "", 204


def member_document(found: Member) -> MemberDocument:
    """A member of a project; `id` is the person's."""
    return {
        "id": found.person_id,
        "name": found.name,
        "email": found.email,
        "role": found.role,
        "added": instant(found.added_at),
    }


def _document(ctx: ViewContext, project: Project) -> ProjectDocument:
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


pages = page_blueprint("projects", __name__, url_prefix="/projects")


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
    except errors.InvalidField as error:
        return _page(ctx, error, field="name", fields=fields)
    return see_other("projects.index", done="made")


@pages.post("/<project_id>/name")
@requires(Action.ADMINISTER)
def rename(ctx: ViewContext, project_id: str) -> BaseResponse:
    """Rename a project."""
    fields = form_fields(ctx)
    try:
        _projects(ctx).change(ctx, project_id, name=fields.get("new_name", ""))
    except errors.InvalidField as error:
        return _page(ctx, error, field="new_name", fields={**fields, "project": project_id})
    return see_other("projects.index", done="renamed")


@pages.post("/<project_id>/remove", endpoint="remove")
@requires(Action.ADMINISTER)
def remove_page(ctx: ViewContext, project_id: str) -> BaseResponse:
    """Delete a project without videos and uploads."""
    try:
        _projects(ctx).remove(ctx, project_id)
    except errors.ProjectInUse as error:
        return _page(ctx, error)
    return see_other("projects.index", done="removed")


DONE = {
    "made": "The project is made. You manage it.",
    "renamed": "The name is saved.",
    "removed": "The project is deleted.",
}


def _page(ctx: ViewContext, error: errors.UploadError | None = None, **shown: Any) -> BaseResponse:
    return form_page(
        "account/projects.html",
        error,
        projects=_projects(ctx).of(ctx.caller),
        # The caller's own roles may be cached for some seconds, without a newly created project.
        roles=roles_now(ctx, ctx.caller.id),
        first=FIRST_PROJECT,
        done=DONE.get(request.args.get("done", "")),
        **shown,
    )
