"""The audit log: /api/audit with its exports, and the page /audit with entries as sentences."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from flask import Blueprint, Response, abort, jsonify, render_template, request

from app.access import audit
from app.access.audit import AuditAction, AuditEntry, AuditEntryDocument, AuditFilter
from app.access.people import emails_of
from app.core.access import Action, CallerKind
from app.core.errors import InvalidRequest
from app.core.json_types import Instant
from app.core.moments import parse_instant
from app.core.numbers import parse_digits
from app.http.access import requires
from app.http.context import ViewContext
from app.http.openapi import ResponseSpec, describes, query

api = Blueprint("api_audit", __name__, url_prefix="/api/audit")
pages = Blueprint("audit", __name__)

PAGE_SIZE = 50

FORMS = {
    "jsonl": ("application/jsonl; charset=utf-8", audit.json_lines),
    "csv": ("text/csv; charset=utf-8", audit.csv_lines),
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
        query("limit", "", int, minimum=1, maximum=audit.MAX_PAGE, default=PAGE_SIZE),
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
    entries = [audit.document_of(entry) for entry in found.entries]
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
    # With the addresses of actors: several people may have the same name.
    prefix = f"{CallerKind.PERSON}:"
    actors = {each.actor for each in found.entries if each.actor.startswith(prefix)}
    emails = emails_of(ctx, {actor.removeprefix(prefix) for actor in actors})
    chosen = {name: request.args[name] for name in CHOICES if request.args.get(name)}
    return render_template(
        "audit.html",
        entries=found.entries,
        emails={f"{prefix}{person_id}": email for person_id, email in emails.items()},
        next_cursor=found.next_cursor,
        chosen=chosen,
        actions=[("", "Everything"), *((action.value, TITLES[action]) for action in AuditAction)],
    )


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


# ---- entries as sentences ------------------------------------------------------------------------

# Such as "Ada invited new@example.org as editor".

NOT_SIGNED_IN = "Someone who is not signed in"

PERSON_CHANGES = {
    "block": "blocked {email}",
    "unblock": "unblocked {email}",
    "make_admin": "made {email} an administrator",
    "make_member": "revoked the administrator rights of {email}",
    "email": "changed the address of {was} to {email}",
}
"""Text for `person.changed` by its `change`; without one, the person changed their own name."""

METHODS = {
    "password": "a password",
    "password+code": "a password and a code",
    "passkey": "a passkey",
    "link": "a link",
}

SENTENCES: Mapping[AuditAction, str] = {
    AuditAction.SESSION_REFUSED: "tried to sign in as {email}, and was refused",
    AuditAction.SESSION_ENDED: "signed out",
    AuditAction.PERSON_REMOVED: "removed the account of {email}",
    AuditAction.PASSWORD_LINK_MADE: "made a link for {email} to choose a new password",
    AuditAction.PASSKEY_ADDED: "added a passkey {name}",
    AuditAction.PASSKEY_REMOVED: "removed a passkey {name}",
    AuditAction.FACTOR_ADDED: "turned on one-time codes for {email}",
    AuditAction.FACTOR_REMOVED: "turned off one-time codes for {email}",
    AuditAction.RECOVERY_CODES_RENEWED: "made new recovery codes for {email}",
    AuditAction.PROVIDER_LINKED: "connected the account {email} to the provider",
    AuditAction.PROVIDER_UNLINKED: "disconnected the account {email} from the provider",
    AuditAction.PASSWORD_CHANGED: "chose a new password",
    AuditAction.PROJECT_MADE: "created the project {name}",
    AuditAction.PROJECT_REMOVED: "deleted the project {name}",
    AuditAction.SETTINGS_CHANGED: "changed the settings of the project {name}",
    AuditAction.INVITATION_MADE: "invited {email}{as_role}",
    AuditAction.INVITATION_REMOVED: "withdrew the invitation of {email}",
    AuditAction.MEMBER_REMOVED: "removed {email} from the project",
    AuditAction.KEY_MADE: "created the API key {name}{as_role}",
    AuditAction.KEY_REVOKED: "revoked the API key {name}",
    AuditAction.LINK_MADE: "created {link}",
    AuditAction.LINK_CHANGED: "changed {link}",
    AuditAction.LINK_CLOSED: "closed {link}",
    AuditAction.WEBHOOK_MADE: "added a webhook to {host}",
    AuditAction.WEBHOOK_CHANGED: "changed the webhook to {host}",
    AuditAction.WEBHOOK_REMOVED: "removed the webhook to {host}",
    AuditAction.WEBHOOK_SECRET_SHOWN: "looked at the secret of the webhook to {host}",
    AuditAction.WEBHOOK_SECRET_RENEWED: "changed the secret of the webhook to {host}",
    AuditAction.UPLOAD_CANCELLED: "cancelled the upload of {filename}",
    AuditAction.VIDEO_RENAMED: "renamed {filename} to {renamed_to}",
    AuditAction.VIDEO_DELETED: "deleted {filename}",
}


class _Details(dict[str, str]):
    """Details of an entry; a missing one is an empty string."""

    def __missing__(self, key: str) -> str:
        return ""


def actor_of(entry: AuditEntry) -> str:
    """The actor, as the beginning of a sentence."""
    if entry.actor == "nobody":
        return NOT_SIGNED_IN
    return entry.actor_name or entry.actor


def deed_of(entry: AuditEntry) -> str:
    """The action, as the rest of the sentence after the actor."""
    details = _Details(
        {name: str(value) for name, value in entry.details.items() if value is not None}
    )
    details["as_role"] = f" as {details['role']}" if details["role"] else ""
    kind = "share link" if entry.subject.startswith("share_link:") else "upload link"
    name = details["name"]
    details["link"] = f"the {kind} {name}" if name else f"{_article(kind)} {kind}"
    return " ".join(_pattern(entry, details).format_map(details).split())


def _pattern(entry: AuditEntry, details: _Details) -> str:
    """The sentence for an entry; for some actions it depends on the details."""
    is_own = entry.subject == entry.actor
    match entry.action:
        case AuditAction.SESSION_BEGAN:
            pattern = f"signed in with {METHODS.get(details['method'], 'the provider')}"
        case AuditAction.PERSON_ADDED:
            pattern = "created the account {email}" if is_own else "added {email}"
        case AuditAction.PERSON_CHANGED:
            other = "changed the name of the account {email}"
            pattern = PERSON_CHANGES.get(details["change"], other)
        case AuditAction.MEMBER_ADDED if is_own:
            pattern = "joined the project{as_role}"
        case AuditAction.MEMBER_ADDED:
            pattern = "added {email} to the project{as_role}"
        case AuditAction.MEMBER_CHANGED if details["role"]:
            pattern = f"made {{email}} {_article(details['role'])} {{role}}"
        case AuditAction.MEMBER_CHANGED:
            pattern = PERSON_CHANGES.get(details["change"], "changed {email}")
        case _:
            pattern = SENTENCES[entry.action]
    return pattern


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


TITLES: Mapping[AuditAction, str] = {
    action: action.value.replace("_", " ").replace(".", ": ").capitalize() for action in AuditAction
}
"""Titles of actions in the filter's list, such as "Link: made"."""


pages.add_app_template_filter(actor_of, "actor")
pages.add_app_template_filter(deed_of, "deed")
