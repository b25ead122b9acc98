"""Links by which somebody joins: shown once, and sent if there is mail."""

from __future__ import annotations

from dataclasses import dataclass

from flask import url_for

from app.domain.access import Role
from app.domain.audit import AuditAction
from app.http.audited import audited
from app.http.context import current_caller, current_services
from app.identity.accounts import clean_email


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link that is shown this one time; `was_mailed` says whether it has also been sent."""

    email: str
    url: str
    was_mailed: bool


def invite(email: str, *, project_id: str | None, role: Role | None) -> NewLink:
    """A link by which whoever has that address joins the project, or the server alone.

    Raises `InvalidField`.
    """
    email, invitations = clean_email(email), current_services().identity.invitations
    by = current_caller().sender
    code = invitations.to_join(email, by=by, project_id=project_id, role=role)
    audited(
        AuditAction.INVITATION_MADE,
        project=project_id,
        is_of_server=project_id is None,
        email=email,
        role=role,
    )
    url = url_for("invitations.join", code=code, _external=True)
    text = f"You are invited to Sluice. Open this link within a week to join:\n\n{url}\n"
    return send_link(email, url, subject="An invitation to Sluice", text=text)


def send_link(email: str, url: str, *, subject: str, text: str) -> NewLink:
    """The link, sent by mail if there is mail."""
    was_mailed = current_services().identity.mail.send(email, subject=subject, text=text)
    return NewLink(email, url, was_mailed)
