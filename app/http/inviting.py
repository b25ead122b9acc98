"""Invitation links: shown once, and sent by mail if it is configured."""

from __future__ import annotations

from dataclasses import dataclass

from app.access.people import clean_email, mixed_alphabets
from app.access.projects import Member
from app.core.access import Role
from app.http.context import ViewContext
from app.http.proxy import absolute_url


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link that is shown only once; `was_mailed` says whether `text` was sent with it.

    `warning` is about the address, or empty.
    """

    email: str
    url: str
    text: str
    was_mailed: bool
    warning: str = ""


def invite(ctx: ViewContext, email: str, *, project_id: str | None, role: Role | None) -> NewLink:
    """Create a link with which the owner of that address joins the project, or only the server.

    Raises `InvalidField`, `TooManyRequests`.
    """
    email = clean_email(email)
    count_mail(ctx, project_id)
    invitations = ctx.services.identity.invitations
    code = invitations.to_join(ctx, email, project_id=project_id, role=role)
    url = absolute_url("invitations.join", code=code)
    text = f"You are invited to Sluice. Open this link within a week to join:\n\n{url}\n"
    return send_link(ctx, email, url, subject="An invitation to Sluice", text=text)


def add_by_administrator(
    ctx: ViewContext, project_id: str, email: str, role: Role
) -> Member | None:
    """Add a person with an account to a project; only administrators of the server can.

    Returns None for other callers, who can only invite. Raises `InvalidField`.
    """
    if not ctx.caller.is_admin:
        return None
    return ctx.services.identity.projects.add_member(ctx, project_id, email, role)


def count_mail(ctx: ViewContext, project_id: str | None = None) -> None:
    """Count a message the caller is about to send; raises `TooManyRequests`."""
    identity = ctx.services.identity
    if identity.mail.is_on:
        identity.mail_limits.count(ctx.caller.sender, project_id)


def send_link(ctx: ViewContext, email: str, url: str, *, subject: str, text: str) -> NewLink:
    """Send the link by mail, if mail is configured."""
    was_mailed = ctx.services.identity.mail.send(email, subject=subject, text=text)
    return NewLink(email, url, text, was_mailed, mixed_alphabets(email))
