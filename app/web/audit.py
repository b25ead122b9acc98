"""The audit log: /api/audit with its exports, and the page /audit."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from flask import Blueprint, Response, abort, jsonify, render_template, request

from app.access import audit
from app.access.audit import (
    MAX_PAGE,
    AuditAction,
    AuditEntry,
    AuditEntryDocument,
    AuditFilter,
    csv_lines,
    document_of,
    json_lines,
)
from app.core.access import Action, CallerKind
from app.core.errors import InvalidRequest
from app.core.json_types import Instant
from app.core.moments import parse_instant
from app.core.numbers import parse_digits
from app.http.access import requires
from app.http.context import ViewContext
from app.http.openapi import ResponseSpec, describes, query
from app.web.audit_words import TITLES, actor_of, deed_of

api = Blueprint("api_audit", __name__, url_prefix="/api/audit")
pages = Blueprint("audit", __name__)
pages.add_app_template_filter(actor_of, "actor")
pages.add_app_template_filter(deed_of, "deed")

PAGE_SIZE = 50

FORMS = {
    "jsonl": ("application/jsonl; charset=utf-8", json_lines),
    "csv": ("text/csv; charset=utf-8", csv_lines),
}

CHOICES = ("action", "actor", "since", "until", "project")
"""Query parameters that are kept across pages."""

# ---- JSON ----------------------------------------------------------------------------------------


FILTERS = (
    query("action", "", AuditAction),
    query("actor", "An `actor`, or an `actor_name`."),
    query("since", "From this time on; ISO 8601, in UTC if it names no zone.", Instant),
    query("until", "Before this time.", Instant),
)


class AuditEntriesDocument(TypedDict):
    """A page of entries."""

    entries: list[AuditEntryDocument]
    next: str | None


@api.get("")
@requires(Action.AUDIT)
@describes(
    "listAuditEntries",
    {200: AuditEntriesDocument},
    InvalidRequest,
    parameters=(
        *FILTERS,
        query("limit", "", int, minimum=1, maximum=MAX_PAGE, default=PAGE_SIZE),
        query("cursor", "The `next` of the page before.", pattern="^[0-9]{1,18}$"),
    ),
)
def index(ctx: ViewContext) -> Response:
    """List the entries of the audit log, newest first.

    Managers of a project see its entries, administrators all.
    """
    limit = parse_digits(request.args.get("limit", str(PAGE_SIZE)))
    if limit is None:
        raise InvalidRequest("The limit must be a whole number.")
    found = audit.page(ctx, wanted_entries(ctx), limit=limit, cursor=request.args.get("cursor"))
    entries = [document_of(entry) for entry in found.entries]
    return jsonify({"entries": entries, "next": found.next_cursor})


@api.get("/export.<ending>")
@requires(Action.AUDIT)
@describes(
    "exportAuditEntries",
    {
        200: ResponseSpec(
            "JSON Lines, or CSV with a line of titles. A cell that a spreadsheet would take for a "
            "formula begins with `'`.",
            {"text/csv": str, "application/jsonl": str},
        )
    },
    InvalidRequest,
    parameters=FILTERS,
)
def export(ctx: ViewContext, ending: str) -> Response:
    """Get all these entries as a file."""
    if ending not in FORMS:
        abort(404)
    content_type, lines_of = FORMS[ending]
    entries = audit.every(ctx, wanted_entries(ctx))
    response = Response(lines_of(entries), content_type=content_type)
    response.headers["Content-Disposition"] = f"attachment; filename=audit.{ending}"
    return response


# ---- pages ---------------------------------------------------------------------------------------


@pages.get("/audit", endpoint="index")
@requires(Action.AUDIT)
def index_page(ctx: ViewContext) -> str:
    """A page of entries, newest first, with the filter form."""
    found = audit.page(
        ctx, wanted_entries(ctx), limit=PAGE_SIZE, cursor=request.args.get("cursor") or None
    )
    chosen = {name: request.args[name] for name in CHOICES if request.args.get(name)}
    return render_template(
        "audit.html",
        entries=found.entries,
        emails=_emails(ctx, found.entries),
        next_cursor=found.next_cursor,
        chosen=chosen,
        actions=[("", "Everything"), *((action.value, TITLES[action]) for action in AuditAction)],
    )


def _emails(ctx: ViewContext, entries: list[AuditEntry]) -> dict[str, str]:
    """The address of each actor that is a person: several people may have the same name."""
    prefix = f"{CallerKind.PERSON}:"
    ids = {each.actor.removeprefix(prefix) for each in entries if each.actor.startswith(prefix)}
    found = ctx.services.identity.people.emails(ids)
    return {f"{prefix}{person_id}": email for person_id, email in found.items()}


# ---- both ----------------------------------------------------------------------------------------


def wanted_entries(ctx: ViewContext) -> AuditFilter:
    """The filter of a request, limited to entries it may see; raises `InvalidRequest`.

    An empty parameter counts as absent, because forms send it. Administrators may name a project.
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
