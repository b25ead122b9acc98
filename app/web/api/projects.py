"""/api/projects: projects and their members."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify

from app.access.projects import Projects
from app.access.records.projects import Member, Project
from app.core.access import Action, CallerKind, Role, parse_role
from app.core.audit import AuditAction
from app.core.errors import NotAllowed
from app.core.moments import instant
from app.core.project_limits import parse_limits
from app.http.access import requires
from app.http.audited import audited, audited_end, audited_member, audited_removal
from app.http.bodies import json_object, member
from app.http.context import current_caller, current_services
from app.http.inviting import add_by_administrator, invite

blueprint = Blueprint("api_projects", __name__, url_prefix="/api/projects")


@blueprint.get("")
@requires(Action.BELONG)
def index() -> Response:
    """The projects the caller may enter; an administrator's are all."""
    return jsonify({"projects": [_document(found) for found in _projects().of(current_caller())]})


@blueprint.post("")
@requires(Action.ADMINISTER)
def make() -> tuple[Response, int]:
    """A new project, managed by the person who makes it."""
    caller = current_caller()
    manager = caller.id if caller.kind is CallerKind.PERSON else None
    project = _projects().make(member(json_object(), "name", kind=str), manager=manager)
    audited(
        AuditAction.PROJECT_MADE, f"project:{project.id}", project=project.id, name=project.name
    )
    role = None if manager is None else Role.MANAGER
    return jsonify({**_document(project), "role": role}), 201


@blueprint.get("/<project_id>")
@requires(Action.MANAGE)
def show(project_id: str) -> Response:
    """One project."""
    return jsonify(_document(_projects().get(project_id)))


@blueprint.patch("/<project_id>")
@requires(Action.MANAGE)
def change(project_id: str) -> Response:
    """Give a project another name; for administrators, also another quota or time for videos."""
    body = json_object()
    limits = parse_limits(body)
    if limits and not current_caller().is_admin:
        raise NotAllowed("Administrators set how much a project may hold, and for how long.")
    if "name" in body or not limits:
        _projects().rename(project_id, member(body, "name", kind=str))
    if limits:
        _projects().set_limits(project_id, limits)
    project = _projects().get(project_id)
    audited(
        AuditAction.SETTINGS_CHANGED,
        f"project:{project_id}",
        name=project.name,
        quota_bytes=project.quota_bytes,
        video_seconds=project.video_seconds,
    )
    return jsonify(_document(project))


@blueprint.delete("/<project_id>")
@requires(Action.ADMINISTER)
def remove(project_id: str) -> tuple[str, int]:
    """End a project without videos and uploads."""
    audited_end(*_projects().remove(project_id))
    return "", 204


@blueprint.get("/<project_id>/members")
@requires(Action.MANAGE)
def members(project_id: str) -> Response:
    """Who is in the project."""
    return jsonify({"members": list(map(member_document, _projects().members(project_id)))})


@blueprint.post("/<project_id>/members")
@requires(Action.MANAGE)
def add_member(project_id: str) -> tuple[Response, int]:
    """Invite somebody by a link, which only this response shows; administrators add accounts.

    Managers do not learn who has an account.
    """
    body = json_object()
    email, role = member(body, "email", kind=str), parse_role(member(body, "role", kind=str))
    if added := add_by_administrator(project_id, email, role):
        return jsonify(member_document(added)), 201
    link = invite(email, project_id=project_id, role=role)
    return jsonify({"invitation": link.url, "warning": link.warning or None}), 202


@blueprint.patch("/<project_id>/members/<person_id>")
@requires(Action.MANAGE)
def change_member(project_id: str, person_id: str) -> Response:
    """Give a member another role."""
    role = parse_role(member(json_object(), "role", kind=str))
    changed = _projects().set_role(project_id, person_id, role)
    audited_member(AuditAction.MEMBER_CHANGED, changed)
    return jsonify(member_document(changed))


@blueprint.delete("/<project_id>/members/<person_id>")
@requires(Action.MANAGE)
def remove_member(project_id: str, person_id: str) -> tuple[str, int]:
    """End a membership."""
    audited_removal(*_projects().remove_member(project_id, person_id))
    return "", 204


def member_document(found: Member) -> dict[str, Any]:
    """A person in a project; `id` is the person's."""
    return {
        "id": found.person_id,
        "name": found.name,
        "email": found.email,
        "role": found.role,
        "added": instant(found.added_at),
    }


def _document(project: Project) -> dict[str, Any]:
    """A project; `role` is what the caller is in it, null for an administrator who is no member."""
    return {
        "id": project.id,
        "name": project.name,
        "role": current_caller().roles.get(project.id),
        "created": instant(project.created_at),
        "used_bytes": project.used_bytes,
        "quota_bytes": project.quota_bytes,
        "video_seconds": project.video_seconds,
    }


def _projects() -> Projects:
    return current_services().identity.projects
