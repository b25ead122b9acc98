"""Notes in the audit log what a request has done."""

from __future__ import annotations

from app.access import audit
from app.access.audit import AuditAction, Detail
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
