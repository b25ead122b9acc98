"""Links by which somebody joins a project."""

from __future__ import annotations

from flask import url_for

from app.domain.access import Role
from app.domain.audit import AuditAction
from app.http.audited import audited
from app.http.context import current_caller, current_services


def invite(project_id: str, email: str, role: Role) -> str:
    """The URL of a link that makes an account for that address, which is then a member.

    It is sent by mail too, if there is mail. Raises `InvalidField`.
    """
    identity = current_services().identity
    code = identity.invitations.to_join(
        email, by=current_caller().sender, project_id=project_id, role=role
    )
    audited(AuditAction.INVITATION_MADE, email=email, role=role)
    url = url_for("invitations.join", code=code, _external=True)
    text = f"You are invited to Sluice. Open this link within a week to make your account:\n\n{url}"
    identity.mail.send(email, subject="An invitation to Sluice", text=f"{text}\n")
    return url
