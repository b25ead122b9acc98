"""/api/audit: who did what, when, from where."""

from __future__ import annotations

from flask import Blueprint, Response, abort, jsonify, request

from app.access.audit_export import csv_lines, document_of, json_lines
from app.core.access import Action
from app.core.errors import InvalidRequest
from app.core.numbers import parse_digits
from app.http.access import requires
from app.http.audited import wanted_entries
from app.http.context import ViewContext

blueprint = Blueprint("api_audit", __name__, url_prefix="/api/audit")

DEFAULT_PAGE = 50

FORMS = {
    "jsonl": ("application/jsonl; charset=utf-8", json_lines),
    "csv": ("text/csv; charset=utf-8", csv_lines),
}


@blueprint.get("")
@requires(Action.AUDIT)
def index(ctx: ViewContext) -> Response:
    """A page of the entries that the parameters ask for, the newest first."""
    limit = parse_digits(request.args.get("limit", str(DEFAULT_PAGE)))
    if limit is None:
        raise InvalidRequest("The limit must be a whole number.")
    audit = ctx.services.identity.audit
    page = audit.page(wanted_entries(ctx), limit=limit, cursor=request.args.get("cursor"))
    entries = [document_of(entry) for entry in page.entries]
    return jsonify({"entries": entries, "next": page.next_cursor})


@blueprint.get("/export.<ending>")
@requires(Action.AUDIT)
def export(ctx: ViewContext, ending: str) -> Response:
    """All of these entries as a file; a page of them at a time is in memory."""
    if ending not in FORMS:
        abort(404)
    content_type, lines_of = FORMS[ending]
    entries = ctx.services.identity.audit.all(wanted_entries(ctx))
    response = Response(lines_of(entries), content_type=content_type)
    response.headers["Content-Disposition"] = f"attachment; filename=audit.{ending}"
    return response
