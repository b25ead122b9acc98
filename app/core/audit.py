"""What the audit log tells of: the words for it, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MAX_TEXT_CHARACTERS = 500
"""Longer texts in an entry's details are cut."""


UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


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
    """Somebody else's upload."""
    VIDEO_RENAMED = "video.renamed"
    VIDEO_DELETED = "video.deleted"


OF_SERVER = frozenset(
    {
        AuditAction.SESSION_BEGAN,
        AuditAction.SESSION_REFUSED,
        AuditAction.SESSION_ENDED,
        AuditAction.PERSON_ADDED,
        AuditAction.PERSON_CHANGED,
        AuditAction.PERSON_REMOVED,
        AuditAction.PASSWORD_CHANGED,
        AuditAction.PASSWORD_LINK_MADE,
        AuditAction.PASSKEY_ADDED,
        AuditAction.PASSKEY_REMOVED,
        AuditAction.FACTOR_ADDED,
        AuditAction.FACTOR_REMOVED,
        AuditAction.RECOVERY_CODES_RENEWED,
        AuditAction.PROVIDER_LINKED,
        AuditAction.PROVIDER_UNLINKED,
    }
)
"""Only administrators see these; the others, whoever manages the project."""

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


def printable(text: str, most: int) -> str:
    """At most `most` characters of a text that may be anything, on one line."""
    return "".join(each if each.isprintable() else UNPRINTABLE for each in text[:most])


def kept_details(details: dict[str, Detail]) -> dict[str, Detail]:
    """The details as they are kept."""
    return {
        name: printable(value, MAX_TEXT_CHARACTERS) if isinstance(value, str) else value
        for name, value in details.items()
    }
