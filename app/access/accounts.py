"""Accounts: made by the operator, changed by whose they are, blocked by administrators."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from sqlalchemy import Connection, delete, update

from app.access import audit
from app.access.audit import AuditAction, Detail
from app.access.creators import (
    Creation,
    RevocationCounts,
    end_made_by,
    end_made_elsewhere,
    made_by,
)
from app.access.passwords import Passwords, require_good
from app.access.people import ADMINISTRATORS, Person, add_person, replace_hash, unique_email
from app.core.errors import InvalidField, LastAdministrator
from app.core.names import clean_name
from app.db.context import Context, RequestContext
from app.db.tables import invitations, people, sessions

MAX_EMAIL_CHARACTERS = 254
"""RFC 5321, section 4.5.3.1.3, as erratum 1690 has it."""

_EMAIL = re.compile(r"[^@\s\"<>(),:;\\\[\]]{1,64}@[^@\s\"<>(),:;\\\[\]]{1,189}")


class Accounts:
    """What happens to an account after it was made through an invitation, or instead of one.

    `forget` ends what this process remembers of sessions; other processes ask again within seconds.
    """

    def __init__(self, passwords: Passwords, forget: Callable[[], None]) -> None:
        self._passwords = passwords
        self._forget = forget

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
        with ctx.database.write() as connection:
            add_person(connection, person)
        _audit(ctx, AuditAction.PERSON_ADDED, person)
        return person

    def rename(self, ctx: RequestContext, person: Person, name: str) -> Person:
        """The person with another name; raises `InvalidField`."""
        changed = replace(person, name=clean_name(name))
        with ctx.database.write() as connection:
            _set(connection, person, name=changed.name)
        self._forget()
        _audit(ctx, AuditAction.PERSON_CHANGED, changed)
        return changed

    def change_email(self, ctx: RequestContext, person: Person, email: str) -> Person:
        """The person with another address; raises `InvalidField`.

        For administrators alone: the owner of an address is let into projects by it, and gets the
        account when the OpenID provider says the address is theirs. Links for a new password work
        no longer: they were sent to the old address.
        """
        changed = replace(person, email=clean_email(email))
        with unique_email(), ctx.database.write() as connection:
            _set(connection, person, email=changed.email)
            if changed.email != person.email:
                _end_links_for_password(connection, person)
        self._forget()
        _audit(ctx, AuditAction.PERSON_CHANGED, changed, was=person.email, change="email")
        return changed

    def change_password(self, ctx: RequestContext, person: Person, password: str) -> None:
        """Store another password; ends all sessions but the caller's, and links to choose one.

        Raises `InvalidField`, also if it has changed since the person was read.
        """
        require_good(password, [person.email, person.name])
        stored = self._passwords.hash(password)
        others = (sessions.c.person_id == person.id) & (sessions.c.id != ctx.caller.session)
        with ctx.database.write() as connection:
            if not replace_hash(connection, person, stored):
                raise InvalidField("Your password was changed in the meantime.", field="password")
            _end_links_for_password(connection, person)
            connection.execute(delete(sessions).where(others))
        self._forget()
        audit.note(ctx, AuditAction.PASSWORD_CHANGED, f"person:{person.id}")

    def block(self, ctx: RequestContext, person: Person) -> None:
        """Let a person in no more: ends their sessions, and the keys and links they have made.

        Raises `LastAdministrator`.
        """
        with ctx.database.write() as connection:
            _require_another_administrator(connection, person)
            _set(connection, person, is_blocked=True)
            connection.execute(delete(sessions).where(sessions.c.person_id == person.id))
            ended = end_made_by(connection, f"person:{person.id}", ctx.clock())
        self._forget()
        audit_ended(ctx, person, ended, "block")
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="block")

    def unblock(self, ctx: RequestContext, person: Person) -> None:
        """Let a person sign in again; their keys and links stay revoked."""
        with ctx.database.write() as connection:
            _set(connection, person, is_blocked=False)
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="unblock")

    def delete(self, ctx: RequestContext, person: Person) -> None:
        """Delete an account with all that is its own; the keys and links it has made end.

        Videos stay with their projects. Raises `LastAdministrator`.
        """
        with ctx.database.write() as connection:
            _require_another_administrator(connection, person)
            ended = end_made_by(connection, f"person:{person.id}", ctx.clock())
            connection.execute(delete(people).where(people.c.id == person.id))
        self._forget()
        audit_ended(ctx, person, ended, "deleted")
        _audit(ctx, AuditAction.PERSON_REMOVED, person)

    def made_by(self, ctx: Context, person: Person) -> list[Creation]:
        """The keys and links of a person that still work, the newest first."""
        with ctx.database.read() as connection:
            return made_by(connection, f"person:{person.id}", ctx.clock())

    def end_made(self, ctx: RequestContext, person: Person) -> None:
        """End all keys, links and invitations of a person."""
        with ctx.database.write() as connection:
            ended = end_made_by(connection, f"person:{person.id}", ctx.clock())
        audit_ended(ctx, person, ended, "keys_and_links_ended")

    def make_admin(self, ctx: RequestContext, person: Person) -> None:
        """Let a person administer the server."""
        with ctx.database.write() as connection:
            _set(connection, person, is_admin=True)
        self._forget()
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="make_admin")

    def end_admin(self, ctx: RequestContext, person: Person) -> None:
        """Let a person administer the server no more.

        The keys and links end that they have made in projects they are not in. Raises
        `LastAdministrator`.
        """
        with ctx.database.write() as connection:
            _require_another_administrator(connection, person)
            _set(connection, person, is_admin=False)
            ended = end_made_elsewhere(connection, person.id, ctx.clock())
        self._forget()
        audit_ended(ctx, person, ended, "make_member")
        _audit(ctx, AuditAction.PERSON_CHANGED, person, change="make_member")


def _set(connection: Connection, person: Person, **values: object) -> None:
    connection.execute(update(people).where(people.c.id == person.id).values(values))


def _end_links_for_password(connection: Connection, person: Person) -> None:
    connection.execute(delete(invitations).where(invitations.c.person_id == person.id))


def _require_another_administrator(connection: Connection, person: Person) -> None:
    """Administrators alone can let others in again: the last one must not lock everyone out."""
    # Locked, and in order: of two who do this at once, the second waits for the first.
    query = ADMINISTRATORS.order_by(people.c.id).with_for_update(key_share=True)
    if {row.id for row in connection.execute(query)} == {person.id}:
        raise LastAdministrator("Nobody else administers this server.")


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
