"""The page of the audit log."""

from __future__ import annotations

from flask import Blueprint, render_template, request

from app.core.access import Action, CallerKind
from app.core.audit import AuditAction, AuditEntry
from app.http.access import requires
from app.http.audited import wanted_entries
from app.http.context import ViewContext
from app.web.pages.audit_words import TITLES, actor_of, deed_of

blueprint = Blueprint("audit", __name__)
blueprint.add_app_template_filter(actor_of, "actor")
blueprint.add_app_template_filter(deed_of, "deed")

PAGE_SIZE = 50

CHOICES = ("action", "actor", "since", "until", "project")
"""Parameters that go from page to page."""


@blueprint.get("/audit")
@requires(Action.AUDIT)
def index(ctx: ViewContext) -> str:
    """A page of entries, the newest first, and what to choose them by."""
    identity = ctx.services.identity
    page = identity.audit.page(
        wanted_entries(ctx), limit=PAGE_SIZE, cursor=request.args.get("cursor") or None
    )
    chosen = {name: request.args[name] for name in CHOICES if request.args.get(name)}
    return render_template(
        "audit.html",
        entries=page.entries,
        emails=_emails(ctx, page.entries),
        next_cursor=page.next_cursor,
        chosen=chosen,
        actions=[("", "Everything"), *((action.value, TITLES[action]) for action in AuditAction)],
    )


def _emails(ctx: ViewContext, entries: list[AuditEntry]) -> dict[str, str]:
    """The address of each actor that is a person: several people may have one name."""
    prefix = f"{CallerKind.PERSON}:"
    ids = {each.actor.removeprefix(prefix) for each in entries if each.actor.startswith(prefix)}
    found = ctx.services.identity.people.emails(ids)
    return {f"{prefix}{person_id}": email for person_id, email in found.items()}
