"""Entries of the audit log as sentences: "Ada invited new@example.org as editor"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.access.audit import AuditAction, AuditEntry

SOMEBODY = "Somebody who is not signed in"

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
        return SOMEBODY
    return entry.actor_name or entry.actor


def deed_of(entry: AuditEntry) -> str:
    """The action, as the rest of the sentence after the actor."""
    details = _Details(
        {name: str(value) for name, value in entry.details.items() if value is not None}
    )
    details["as_role"] = f" as {details['role']}" if details["role"] else ""
    details["link"] = _link(entry, details)
    if find := _FURTHER.get(entry.action):
        pattern = find(entry, details)
    else:
        pattern = SENTENCES[entry.action]
    return " ".join(pattern.format_map(details).split())


def _link(entry: AuditEntry, details: _Details) -> str:
    kind = "share link" if entry.subject.startswith("share_link:") else "upload link"
    return f"the {kind} {details['name']}" if details["name"] else f"{_article(kind)} {kind}"


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _began(_entry: AuditEntry, details: _Details) -> str:
    method = METHODS.get(details["method"], "the provider")
    return f"signed in with {method}"


def _added(entry: AuditEntry, _details: _Details) -> str:
    is_own = entry.subject == entry.actor
    return "created the account {email}" if is_own else "added {email}"


def _changed(_entry: AuditEntry, details: _Details) -> str:
    return PERSON_CHANGES.get(details["change"], "changed the name of the account {email}")


def _joined(entry: AuditEntry, _details: _Details) -> str:
    is_own = entry.subject == entry.actor
    return "joined the project{as_role}" if is_own else "added {email} to the project{as_role}"


def _member_changed(_entry: AuditEntry, details: _Details) -> str:
    if details["role"]:
        return "made {email} {article} {role}".replace("{article}", _article(details["role"]))
    return PERSON_CHANGES.get(details["change"], "changed {email}")


_FURTHER: Mapping[AuditAction, Callable[[AuditEntry, _Details], str]] = {
    AuditAction.SESSION_BEGAN: _began,
    AuditAction.PERSON_ADDED: _added,
    AuditAction.PERSON_CHANGED: _changed,
    AuditAction.MEMBER_ADDED: _joined,
    AuditAction.MEMBER_CHANGED: _member_changed,
}
"""Sentences that depend on more than the action."""

TITLES: Mapping[AuditAction, str] = {
    action: action.value.replace("_", " ").replace(".", ": ").capitalize() for action in AuditAction
}
"""Titles of actions in the filter's list, such as "Link: made"."""
