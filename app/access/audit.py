"""The audit log: who did what, when, from where. Use cases note what they have done."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict

from sqlalchemy import ColumnElement, Row, delete, insert, or_, select

from app.core.access import Caller
from app.core.errors import InvalidRequest, UploadError
from app.core.json_types import Instant
from app.core.lifecycle import UploadState
from app.core.moments import instant
from app.core.numbers import parse_bounded
from app.core.upload import Upload
from app.db.context import Context, RequestContext
from app.db.tables import audit

MAX_TEXT_CHARACTERS = 500
"""Longer texts in an entry's details are cut."""

SUBJECT_CHARACTERS = 100
ADDRESS_CHARACTERS = 64

MAX_PAGE = 500
"""More entries are never read at once."""

FORMULA_SIGNS = tuple("=+-@\t\r\n＝＋－＠")
"""A spreadsheet takes a cell that begins with one of these for a formula, and runs it."""

COLUMNS = ("id", "at", "action", "actor", "actor_name", "address", "subject", "project", "details")

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"

log = logging.getLogger(__name__)

# ---- rows ----------------------------------------------------------------------------------------


class AuditAction(StrEnum):
    """What was done. Programs that read the log rely on these words."""

    SESSION_BEGAN = "session.began"
    SESSION_REFUSED = "session.refused"
    """A password, passkey or provider's answer was not accepted."""
    SESSION_ENDED = "session.ended"
    PERSON_ADDED = "person.added"
    PERSON_CHANGED = "person.changed"
    PERSON_REMOVED = "person.removed"
    PASSWORD_CHANGED = "password.changed"
    PASSWORD_LINK_MADE = "password_link.made"
    PASSKEY_ADDED = "passkey.added"
    PASSKEY_REMOVED = "passkey.removed"
    FACTOR_ADDED = "factor.added"
    """One-time codes beside the password."""
    FACTOR_REMOVED = "factor.removed"
    RECOVERY_CODES_RENEWED = "recovery_codes.renewed"
    PROVIDER_LINKED = "provider.linked"
    PROVIDER_UNLINKED = "provider.unlinked"
    PROJECT_MADE = "project.made"
    PROJECT_REMOVED = "project.removed"
    SETTINGS_CHANGED = "settings.changed"
    """Of a project: its name, its quota, how long its videos are kept."""
    INVITATION_MADE = "invitation.made"
    INVITATION_REMOVED = "invitation.removed"
    MEMBER_ADDED = "member.added"
    MEMBER_CHANGED = "member.changed"
    MEMBER_REMOVED = "member.removed"
    KEY_MADE = "key.made"
    KEY_REVOKED = "key.revoked"
    LINK_MADE = "link.made"
    LINK_CHANGED = "link.changed"
    LINK_CLOSED = "link.closed"
    WEBHOOK_MADE = "webhook.made"
    WEBHOOK_CHANGED = "webhook.changed"
    WEBHOOK_REMOVED = "webhook.removed"
    WEBHOOK_SECRET_SHOWN = "webhook.secret_shown"
    WEBHOOK_SECRET_RENEWED = "webhook.secret_renewed"
    UPLOAD_CANCELLED = "upload.cancelled"
    """Another client's upload."""
    VIDEO_RENAMED = "video.renamed"
    VIDEO_DELETED = "video.deleted"


_OF_ACCOUNTS = {
    "session",
    "person",
    "password",
    "password_link",
    "passkey",
    "factor",
    "recovery_codes",
    "provider",
}
OF_SERVER = frozenset(each for each in AuditAction if each.partition(".")[0] in _OF_ACCOUNTS)
"""Only administrators see these; managers see the others of their project."""

Detail = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who (`actor`, as in `Caller.actor`) did what, when, from where.

    `subject` is what it was done to, as "video:ID". Without a project it concerns the server.
    `number` grows from entry to entry.
    """

    number: int = 0
    at: datetime
    action: AuditAction
    actor: str
    actor_name: str
    address: str
    subject: str
    project_id: str | None
    details: dict[str, Detail]

    @classmethod
    def of(cls, row: Row[Any]) -> AuditEntry:
        """The entry of a row of `db.tables.audit`."""
        values = dict(row._mapping)
        parsed = {"action": AuditAction(row.action), "details": json.loads(row.details)}
        return cls(number=values.pop("id"), **{**values, **parsed})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries; None for all. `since` is inclusive, `until` is not.

    `actor` is an actor, or the name of some.
    """

    project_id: str | None = None
    action: AuditAction | None = None
    actor: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries, the newest first, and the cursor of the page after them."""

    entries: list[AuditEntry]
    next_cursor: str | None


# ---- rules ---------------------------------------------------------------------------------------


def printable(text: str, most: int) -> str:
    """At most `most` characters of a text that may be anything, on one line."""
    return "".join(each if each.isprintable() else UNPRINTABLE for each in text[:most])


# ---- use cases -----------------------------------------------------------------------------------


def note(
    ctx: RequestContext,
    action: AuditAction,
    subject: str = "",
    *,
    project: str | None = None,
    caller: Caller | None = None,
    **details: Detail,
) -> None:
    """Add an entry for what has been done, outside its transaction. Never fails.

    `subject` is "video:ID" or the like. `project` is by default the caller's, and "" for what
    concerns the server, as some actions always do. `caller` is by default that of the request: name
    another after a sign-in. `details` hold no secrets. An entry for which there is no room goes to
    the server's log: what was done is not undone.
    """
    caller = caller or ctx.caller
    if project is None:
        project = caller.project
    entry = AuditEntry(
        at=ctx.clock(),
        action=action,
        actor=printable(caller.actor, SUBJECT_CHARACTERS),
        actor_name=printable(caller.name, SUBJECT_CHARACTERS),
        address=printable(ctx.address, ADDRESS_CHARACTERS),
        subject=printable(subject, SUBJECT_CHARACTERS),
        project_id=None if action in OF_SERVER else project or None,
        details={
            name: printable(value, MAX_TEXT_CHARACTERS) if isinstance(value, str) else value
            for name, value in details.items()
        },
    )
    row = asdict(entry)
    del row["number"]  # The database counts.
    row["details"] = json.dumps(entry.details, separators=(",", ":"))
    try:
        with ctx.database.write() as connection:
            connection.execute(insert(audit).values(row))
    except UploadError as error:
        log.error("the audit log has no room for %s: %s", entry, error)


def note_rename(ctx: RequestContext, video: Upload, filename: str) -> None:
    """Note that a video has a new name."""
    note(
        ctx,
        AuditAction.VIDEO_RENAMED,
        f"video:{video.id}",
        project=video.owner,
        filename=video.filename,
        renamed_to=filename,
    )


def note_removal(ctx: RequestContext, upload: Upload) -> None:
    """Note that a video was deleted, or that another client's upload was cancelled."""
    if upload.state is UploadState.COMPLETE:
        action, subject = AuditAction.VIDEO_DELETED, f"video:{upload.id}"
    elif upload.sender != ctx.caller.sender:
        action, subject = AuditAction.UPLOAD_CANCELLED, f"upload:{upload.id}"
    else:
        return
    filename, sender = upload.filename, upload.sender
    note(ctx, action, subject, project=upload.owner, filename=filename, sender=sender)


def page(ctx: Context, wanted: AuditFilter, *, limit: int, cursor: str | None) -> AuditPage:
    """The newest entries, or those after a cursor; raises `InvalidRequest`."""
    before = None if cursor is None else parse_bounded(cursor)
    if cursor is not None and before is None:
        raise InvalidRequest("The cursor is not one of this server's.")
    if not 0 < limit <= MAX_PAGE:
        raise InvalidRequest(f"The limit must be 1 to {MAX_PAGE}.")
    conditions: list[tuple[Any, Callable[[Any], ColumnElement[bool]]]] = [
        (wanted.project_id, audit.c.project_id.__eq__),
        (wanted.action, audit.c.action.__eq__),
        (wanted.actor, lambda who: or_(audit.c.actor == who, audit.c.actor_name == who)),
        (wanted.since, audit.c.at.__ge__),
        (wanted.until, audit.c.at.__lt__),
        (before, audit.c.id.__lt__),
    ]
    query = select(audit).order_by(audit.c.id.desc()).limit(limit + 1)
    query = query.where(*(meets(value) for value, meets in conditions if value is not None))
    with ctx.database.read() as connection:
        entries = [AuditEntry.of(row) for row in connection.execute(query)]
    has_more = len(entries) > limit
    return AuditPage(entries[:limit], str(entries[limit - 1].number) if has_more else None)


def every(ctx: Context, wanted: AuditFilter) -> Iterator[AuditEntry]:
    """Every entry, the newest first; a page at a time is in memory."""
    cursor: str | None = None
    while True:
        found = page(ctx, wanted, limit=MAX_PAGE, cursor=cursor)
        yield from found.entries
        if (cursor := found.next_cursor) is None:
            return


def remove_old(ctx: Context) -> None:
    """Remove the entries that are older than the settings say, in small transactions."""
    cutoff = ctx.clock() - timedelta(seconds=ctx.settings.audit_seconds)
    oldest = select(audit.c.id, audit.c.at).order_by(audit.c.id).limit(MAX_PAGE)
    old: Sequence[int] = range(MAX_PAGE)
    while len(old) == MAX_PAGE:
        with ctx.database.read() as connection:
            old = [row.id for row in connection.execute(oldest) if row.at < cutoff]
        if old:
            with ctx.database.write() as connection:
                connection.execute(delete(audit).where(audit.c.id.in_(old)))


# ---- as files ------------------------------------------------------------------------------------


class AuditEntryDocument(TypedDict):
    """An entry of the audit log."""

    id: int
    at: Instant
    action: AuditAction
    actor: str
    """Who it was: `person:ID`, `key:ID`, `local`, `nobody` ..."""
    actor_name: str
    address: str
    """The IP address that it came from."""
    subject: str
    """What it was done to, as in `video:ID`."""
    project: str | None
    """Null if it concerns the server."""
    details: dict[str, Any]


def document_of(entry: AuditEntry) -> AuditEntryDocument:
    """An entry as JSON shows it."""
    return {
        "id": entry.number,
        "at": instant(entry.at),
        "action": entry.action,
        "actor": entry.actor,
        "actor_name": entry.actor_name,
        "address": entry.address,
        "subject": entry.subject,
        "project": entry.project_id,
        "details": entry.details,
    }


def json_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """One object a line."""
    for entry in entries:
        yield json.dumps(document_of(entry), ensure_ascii=False) + "\n"


def csv_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """A line of titles, then one line an entry (RFC 4180)."""
    yield _csv_line(COLUMNS)
    for entry in entries:
        details = json.dumps(entry.details, ensure_ascii=False)
        cells: dict[str, Any] = {**document_of(entry), "details": details}
        yield _csv_line([without_formula(str(cells[name] or "")) for name in COLUMNS])


def without_formula(text: str) -> str:
    """The text of a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text


def _csv_line(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
