"""Notes in the audit log what a request has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from app.access import audit
from app.access.audit import AuditAction, Detail
from app.access.creators import RevocationCounts
from app.access.invitations import Invitation
from app.access.people import Person
from app.core.access import Caller
from app.core.lifecycle import UploadState
from app.core.upload import Upload
from app.db.context import RequestContext


def audited(
    ctx: RequestContext,
    action: AuditAction,
    subject: str = "",
    *,
    project: str | None = None,
    caller: Caller | None = None,
    **details: Detail,
) -> None:
    """Note what the request has done; see `audit.note`."""
    audit.note(
        ctx,
        action,
        subject,
        project=project,
        caller=caller,
        details=details,
    )


def audit_rename(ctx: RequestContext, video: Upload, filename: str) -> None:
    """Note that a video has a new name."""
    audited(
        ctx,
        AuditAction.VIDEO_RENAMED,
        f"video:{video.id}",
        project=video.owner,
        filename=video.filename,
        renamed_to=filename,
    )


def audit_removal(ctx: RequestContext, upload: Upload) -> None:
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


def audited_joining(
    ctx: RequestContext, invitation: Invitation, caller: Caller, *, email: str
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


def audited_withdrawal(ctx: RequestContext, invitation: Invitation) -> None:
    """Note that a link works no longer by which somebody would have joined."""
    audited(
        ctx,
        AuditAction.INVITATION_REMOVED,
        project=invitation.project_id or "",
        email=invitation.email,
        role=invitation.role,
    )


def note_ended(
    ctx: RequestContext, person: Person, ended: Mapping[str, RevocationCounts], change: str
) -> None:
    """Note in each project what has ended because of a change to a person, such as "block"."""
    for project, counts in ended.items():
        audit.note(
            ctx,
            AuditAction.MEMBER_CHANGED,
            f"person:{person.id}",
            project=project,
            details={"email": person.email, "change": change, **asdict(counts)},
        )
