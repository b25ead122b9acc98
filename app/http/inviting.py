"""Links by which somebody joins: shown once, and sent if there is mail."""

from __future__ import annotations

from dataclasses import dataclass

from app.access.accounts import clean_email, mixed_alphabets
from app.access.projects import Member
from app.core.access import Role
from app.http.context import ViewContext
from app.http.proxy import absolute_url


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link that is shown this one time; `was_mailed` says whether `text` was sent with it.

    `warning` is about the address, or empty.
    """

    email: str
    url: str
    text: str
    was_mailed: bool
    warning: str = ""


def invite(ctx: ViewContext, email: str, *, project_id: str | None, role: Role | None) -> NewLink:
    """A link by which whoever has that address joins the project, or the server alone.

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
    """The new member, if an administrator of the server adds somebody who has an account.

    Everybody else can only invite. Raises `InvalidField`.
    """
    if not ctx.caller.is_admin:
        return None
    return ctx.services.identity.projects.add_member(ctx, project_id, email, role)


def count_mail(ctx: ViewContext, project_id: str | None = None) -> None:
    """Count a message that the caller is about to send; raises `TooManyRequests`."""
    identity = ctx.services.identity
    if identity.mail.is_on:
        identity.mail_limits.count(ctx.caller.sender, project_id)


def send_link(ctx: ViewContext, email: str, url: str, *, subject: str, text: str) -> NewLink:
    """The link, sent by mail if there is mail."""
    was_mailed = ctx.services.identity.mail.send(email, subject=subject, text=text)
    return NewLink(email, url, text, was_mailed, mixed_alphabets(email))
