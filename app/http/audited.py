"""Notes in the audit log what a request has done, and reads which entries one asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from urllib.parse import urlsplit

from flask import request

from app.access.records.invitations import Invitation
from app.access.records.made_by import Ended
from app.access.records.people import Person
from app.access.records.projects import Member, Project
from app.access.records.webhooks import Webhook
from app.core.access import Caller
from app.core.audit import OF_SERVER, AuditAction, AuditFilter, Detail
from app.core.errors import InvalidRequest
from app.core.lifecycle import UploadState
from app.core.moments import parse_instant
from app.core.upload import Upload
from app.http.context import ViewContext


def audited(
    ctx: ViewContext,
    action: AuditAction,
    subject: str = "",
    *,
    project: str | None = None,
    is_of_server: bool = False,
    caller: Caller | None = None,
    **details: Detail,
) -> None:
    """Note that the request has done this; call it once that is done. Never fails.

    `subject` is "video:ID" or the like. `project` is by default the caller's, unless this
    concerns the server, as some actions always do. `caller` is by default who sends the request:
    name another after a sign-in. `details` hold no secrets.
    """
    caller = caller or ctx.caller
    is_of_server |= action in OF_SERVER
    of_project = None if is_of_server else project or caller.project or None
    ctx.services.identity.audit.note(
        action,
        subject,
        caller=caller,
        address=request.remote_addr or "",
        project=of_project,
        details=details,
    )


def audit_rename(ctx: ViewContext, video: Upload, filename: str) -> None:
    """Note that a video has a new name."""
    audited(
        ctx,
        AuditAction.VIDEO_RENAMED,
        f"video:{video.id}",
        project=video.owner,
        filename=video.filename,
        renamed_to=filename,
    )


def audit_removal(ctx: ViewContext, upload: Upload) -> None:
    """Note that a video was deleted, or an upload cancelled by somebody who has not sent it."""
    if upload.state is UploadState.COMPLETE:
        action, subject = AuditAction.VIDEO_DELETED, f"video:{upload.id}"
    elif upload.sender != ctx.caller.sender:
        action, subject = AuditAction.UPLOAD_CANCELLED, f"upload:{upload.id}"
    else:
        return
    audited(
        ctx, action, subject, project=upload.owner, filename=upload.filename, sender=upload.sender
    )


def audited_member(ctx: ViewContext, action: AuditAction, member: Member) -> None:
    """Note what was done to a member of the request's project."""
    audited(ctx, action, f"person:{member.person_id}", email=member.email, role=member.role)


def audited_removal(ctx: ViewContext, member: Member, ended: Ended) -> None:
    """Note that somebody is no longer a member, and what has ended with that."""
    audited(
        ctx,
        AuditAction.MEMBER_REMOVED,
        f"person:{member.person_id}",
        email=member.email,
        role=member.role,
        **asdict(ended),
    )


def audited_joining(
    ctx: ViewContext, invitation: Invitation, caller: Caller, *, email: str
) -> None:
    """Note who has joined, and which address was invited: any account may take the link."""
    audited(
        ctx,
        AuditAction.MEMBER_ADDED,
        caller.actor,
        project=invitation.project_id,
        caller=caller,
        email=email,
        invited=invitation.email,
        role=invitation.role,
        by="link",
    )


def audited_withdrawal(ctx: ViewContext, invitation: Invitation) -> None:
    """Note that a link works no longer by which somebody would have joined."""
    audited(
        ctx,
        AuditAction.INVITATION_REMOVED,
        project=invitation.project_id,
        is_of_server=invitation.project_id is None,
        email=invitation.email,
        role=invitation.role,
    )


def audited_end(ctx: ViewContext, project: Project, ended: Mapping[str, int]) -> None:
    """Note that a project was deleted, and how much of each kind has ended with it."""
    audited(
        ctx,
        AuditAction.PROJECT_REMOVED,
        f"project:{project.id}",
        project=project.id,
        name=project.name,
        members=ended["members"],
        keys=ended["keys"],
        links=ended["links"],
        webhooks=ended["webhooks"],
    )


def audited_webhook(ctx: ViewContext, action: AuditAction, webhook: Webhook) -> None:
    """Note what was done to a webhook; of its URL only the host, for some URLs are secrets."""
    audited(
        ctx,
        action,
        f"webhook:{webhook.id}",
        project=webhook.project_id,
        host=urlsplit(webhook.url).hostname,
        events=" ".join(webhook.events),
        is_paused=webhook.paused_at is not None,
    )


def wanted_entries(ctx: ViewContext) -> AuditFilter:
    """The entries that a request asks for, of those it may see; raises `InvalidRequest`.

    An empty parameter is none: forms send them so. Administrators may name a project.
    """
    action = request.args.get("action")
    try:
        wanted_action = AuditAction(action) if action else None
    except ValueError as error:
        raise InvalidRequest("The audit log has no such action.") from error
    return AuditFilter(
        project_id=ctx.scope.whole() or request.args.get("project") or None,
        action=wanted_action,
        actor=request.args.get("actor") or None,
        since=_moment("since"),
        until=_moment("until"),
    )


def _moment(name: str) -> datetime | None:
    text = request.args.get(name)
    moment = parse_instant(text) if text else None
    if text and moment is None:
        raise InvalidRequest(f"The parameter {name} must be a time in ISO 8601.")
    return moment


def note_ended(ctx: ViewContext, person: Person, ended: Mapping[str, Ended], change: str) -> None:
    """Note in the audit log of each project what has ended there with a change of the person."""
    audit = ctx.services.identity.audit
    audit.note_ended(
        person, ended, change=change, caller=ctx.caller, address=request.remote_addr or ""
    )
