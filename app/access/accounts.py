"""Accounts: made by the operator, changed by whose they are, blocked by administrators."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict

from app.access import audit
from app.access.audit import AuditAction, Detail
from app.access.creators import Creation, RevocationCounts
from app.access.passwords import Passwords, require_good
from app.access.people import PeopleRecords, Person
from app.access.sessions import Sessions
from app.core.errors import InvalidField
from app.core.names import clean_name
from app.db.context import Context, RequestContext

MAX_EMAIL_CHARACTERS = 254
"""RFC 5321, section 4.5.3.1.3, as erratum 1690 has it."""

_EMAIL = re.compile(r"[^@\s\"<>(),:;\\\[\]]{1,64}@[^@\s\"<>(),:;\\\[\]]{1,189}")


class Accounts:
    """What happens to an account after it was made through an invitation, or instead of one."""

    def __init__(self, ctx: Context, sessions: Sessions, passwords: Passwords) -> None:
        self._ctx = ctx
        self._people = PeopleRecords(ctx.database)
        self._sessions = sessions
        self._passwords = passwords

    def add(
        self,
        ctx: RequestContext,
        email: str,
        *,
        name: str = "",
        password: str | None = None,
        is_admin: bool = False,
    ) -> Person:
        """A new person; without a name, what is before the @. Raises `InvalidField`."""
        email = clean_email(email)
        name = clean_name(name or email.partition("@")[0])
        if password is not None:
            require_good(password, [email, name])
        person = Person(
            id=ctx.new_id(),
            email=email,
            name=name,
            created_at=ctx.clock(),
            password_hash=None if password is None else self._passwords.hash(password),
            is_admin=is_admin,
        )
        self._people.add(person)
        _audit(ctx, AuditAction.PERSON_ADDED, person)
        return person

    def rename(self, ctx: RequestContext, person: Person, name: str) -> Person:
        """The person with another name; raises `InvalidField`."""
        changed = self._people.rename(person, name=clean_name(name), email=person.email)
        self._sessions.forget()
        _audit(ctx, AuditAction.PERSON_CHANGED, changed)
        return changed

    def change_email(self, ctx: RequestContext, person: Person, email: str) -> Person:
        """The person with another address; raises `InvalidField`.

        For administrators alone: the owner of an address is let into projects by it, and gets the
        account when the OpenID provider says the address is theirs.
        """
        changed = self._people.rename(person, name=person.name, email=clean_email(email))
        self._sessions.forget()
        _audit(ctx, AuditAction.PERSON_CHANGED, changed, was=person.email, change="email")
        return changed

    def change_password(self, ctx: RequestContext, person: Person, password: str) -> None:
        """Store another password and end all sessions but the caller's; raises `InvalidField`."""
        require_good(password, [person.email, person.name])
        if not self._people.set_password(person, self._passwords.hash(password)):
            raise InvalidField("Your password was changed in the meantime.", field="password")
        self._sessions.end_others(person.id, but=ctx.caller.session)
        audit.note(ctx, AuditAction.PASSWORD_CHANGED, f"person:{person.id}")

    def block(self, ctx: RequestContext, person: Person) -> None:
        """Let a person in no more, nor the keys and links they have made.

        Raises `LastAdministrator`.
        """
        ended = self._people.block(person.id, ctx.clock())
        self._sessions.forget()
        audit_ended(ctx, person, ended, "block")
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="block")

    def unblock(self, ctx: RequestContext, person: Person) -> None:
        """Let a person sign in again; their keys and links stay revoked."""
        self._people.unblock(person.id)
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="unblock")

    def delete(self, ctx: RequestContext, person: Person) -> None:
        """Delete an account; the keys and links it has made end.

        Videos stay with their projects. Raises `LastAdministrator`.
        """
        ended = self._people.remove(person.id, ctx.clock())
        self._sessions.forget()
        audit_ended(ctx, person, ended, "deleted")
        _audit(ctx, AuditAction.PERSON_REMOVED, person)

    def made_by(self, person: Person) -> list[Creation]:
        """The keys and links of a person that still work, the newest first."""
        return self._people.made_by(person.id, self._ctx.clock())

    def end_made(self, ctx: RequestContext, person: Person) -> None:
        """End all keys, links and invitations of a person."""
        ended = self._people.end_made(person.id, ctx.clock())
        audit_ended(ctx, person, ended, "keys_and_links_ended")

    def make_admin(self, ctx: RequestContext, person: Person) -> None:
        """Let a person administer the server."""
        self._people.make_admin(person.id)
        self._sessions.forget()
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="make_admin")

    def end_admin(self, ctx: RequestContext, person: Person) -> None:
        """Let a person administer the server no more.

        The keys and links end that they have made in projects they are not in. Raises
        `LastAdministrator`.
        """
        ended = self._people.end_admin(person.id, ctx.clock())
        self._sessions.forget()
        audit_ended(ctx, person, ended, "make_member")
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="make_member")


def audit_ended(
    ctx: RequestContext, person: Person, ended: Mapping[str, RevocationCounts], change: str
) -> None:
    """Note in each project what has ended because of a change to a person, such as "block"."""
    for project, counts in ended.items():
        audit.note(
            ctx,
            AuditAction.MEMBER_CHANGED,
            f"person:{person.id}",
            project=project,
            details={"email": person.email, "change": change, **asdict(counts)},
        )


def _audit(ctx: RequestContext, action: AuditAction, person: Person, **more: Detail) -> None:
    audit.note(ctx, action, f"person:{person.id}", details={"email": person.email, **more})


def mixed_alphabets(email: str) -> str:
    """A warning about an address with letters of several alphabets; empty for any other.

    Some letters look the same in Latin, Greek and Cyrillic.
    """
    letters: dict[str, str] = {}
    for letter in filter(str.isalpha, email):
        letters.setdefault(unicodedata.name(letter, "?").partition(" ")[0].capitalize(), letter)
    if len(letters) < 2:
        return ""
    found = ", ".join(f"“{letter}” is {name}" for name, letter in letters.items())
    return f"The address {email} mixes alphabets: {found}. Make sure that it is the right one."


def clean_email(text: str) -> str:
    """The address in lower case; raises `InvalidField` for what cannot be one."""
    email = text.strip().lower()
    is_short = len(email) <= MAX_EMAIL_CHARACTERS
    if not (is_short and email.isprintable() and _EMAIL.fullmatch(email)):
        raise InvalidField("Enter an e-mail address, such as ann@example.org.", field="email")
    return email
