"""People and their accounts: made, changed, blocked and deleted; their roles in projects."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from app.access import audit
from app.access.audit import AuditAction
from app.access.creators import Creation, RevocationCounts, end_made_by, end_made_elsewhere, made_by
from app.access.passwords import Passwords, require_good
from app.core.access import Caller, CallerKind, Role
from app.core.errors import InvalidField, LastAdministrator, NotSignedIn, SignInRefused
from app.core.names import clean_name
from app.db.context import Context, RequestContext
from app.db.sql import insert_row
from app.db.tables import (
    invitations,
    members,
    passkeys,
    people,
    recovery_codes,
    second_factors,
    sessions,
)

MAX_EMAIL_CHARACTERS = 254
"""RFC 5321, section 4.5.3.1.3, as erratum 1690 has it."""

_EMAIL = re.compile(r"[^@\s\"<>(),:;\\\[\]]{1,64}@[^@\s\"<>(),:;\\\[\]]{1,189}")

# ---- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person with an account; `email` is in lower case.

    `password_hash` is None for who signs in by other means. `is_proven` says that the address is
    known to be theirs: from an administrator or the OpenID provider, not from a manager, who sees
    the link with which the account is made and may have opened it. `visited_at` is when they last
    used a session, to the minute.
    """

    id: str
    email: str
    name: str
    created_at: datetime
    password_hash: str | None = None
    is_admin: bool = False
    is_blocked: bool = False
    is_proven: bool = True
    visited_at: datetime | None = None

    @classmethod
    def of(cls, row: Row[Any]) -> Person:
        """The person in a row that has all columns of `people`."""
        return cls(**{column.name: row._mapping[column] for column in people.columns})

    @property
    def caller(self) -> Caller:
        """Who acts in the audit log, before a session has begun."""
        return Caller(kind=CallerKind.PERSON, id=self.id, name=self.name)


# ---- rules ---------------------------------------------------------------------------------------


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


# ---- looking people up ---------------------------------------------------------------------------


def find_person(ctx: Context, person_id: str) -> Person | None:
    """The person with that id."""
    return _one(ctx, people.c.id == person_id)


def current_person(ctx: RequestContext) -> Person:
    """The person who sends the request; raises `NotSignedIn` if the account was removed."""
    person = find_person(ctx, ctx.caller.id)
    if person is None:
        raise NotSignedIn("Your account was removed.")
    return person


def admitted(person: Person | None, *, person_id: str = "") -> Person:
    """The person who signs in; raises `SignInRefused` if they are blocked or gone."""
    if person is None or person.is_blocked:
        message = "This account is blocked. An administrator can let you in again."
        raise SignInRefused(message, person_id=person_id)
    return person


def find_by_email(ctx: Context, email: str) -> Person | None:
    """The person with that address, in lower case."""
    return _one(ctx, people.c.email == email)


def emails_of(ctx: Context, ids: Collection[str]) -> dict[str, str]:
    """The addresses of the people with these ids."""
    query = select(people.c.id, people.c.email).where(people.c.id.in_(ids))
    with ctx.database.read() as connection:
        return {row.id: row.email for row in connection.execute(query)}


def all_people(ctx: Context) -> list[Person]:
    """All people, by name."""
    query = select(people).order_by(func.lower(people.c.name), people.c.id)
    with ctx.database.read() as connection:
        return [Person.of(row) for row in connection.execute(query)]


def administrators(ctx: Context) -> list[Person]:
    """Those who can let others in, by name."""
    return [person for person in all_people(ctx) if person.is_admin and not person.is_blocked]


def has_administrator(ctx: Context) -> bool:
    """Whether the server has an administrator."""
    with ctx.database.read() as connection:
        return connection.execute(ADMINISTRATORS.limit(1)).first() is not None


def roles_now(ctx: Context, person_id: str) -> Mapping[str, Role]:
    """The person's role in each project, the earliest joined first."""
    with ctx.database.read() as connection:
        return roles_of(connection, person_id)


def all_roles(ctx: Context) -> Mapping[str, Mapping[str, Role]]:
    """The roles of all people, by person and project."""
    query = select(members.c.person_id, members.c.project_id, members.c.role)
    roles: dict[str, dict[str, Role]] = defaultdict(dict)
    with ctx.database.read() as connection:
        for row in connection.execute(query.order_by(members.c.added_at)):
            roles[row.person_id][row.project_id] = Role(row.role)
    return roles


def _one(ctx: Context, condition: ColumnElement[bool]) -> Person | None:
    with ctx.database.read() as connection:
        row = connection.execute(select(people).where(condition)).first()
    return None if row is None else Person.of(row)


# ---- use cases -----------------------------------------------------------------------------------


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
        audit_person(ctx, AuditAction.PERSON_ADDED, person)
        return person

    def rename(self, ctx: RequestContext, person: Person, name: str) -> Person:
        """The person with another name; raises `InvalidField`."""
        changed = replace(person, name=clean_name(name))
        with ctx.database.write() as connection:
            _set(connection, person, name=changed.name)
        self._forget()
        audit_person(ctx, AuditAction.PERSON_CHANGED, changed)
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
        _audit_change(ctx, person, "email", email=changed.email)
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
        _audit_change(ctx, person, "block")

    def unblock(self, ctx: RequestContext, person: Person) -> None:
        """Let a person sign in again; their keys and links stay revoked."""
        with ctx.database.write() as connection:
            _set(connection, person, is_blocked=False)
        _audit_change(ctx, person, "unblock")

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
        audit_person(ctx, AuditAction.PERSON_REMOVED, person)

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
        _audit_change(ctx, person, "make_admin")

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
        _audit_change(ctx, person, "make_member")


def _set(connection: Connection, person: Person, **values: object) -> None:
    connection.execute(update(people).where(people.c.id == person.id).values(values))


def _end_links_for_password(connection: Connection, person: Person) -> None:
    connection.execute(delete(invitations).where(invitations.c.person_id == person.id))


def _require_another_administrator(connection: Connection, person: Person) -> None:
    """Administrators alone can let others in again: the last one must not lock everyone out."""
    # Locked, and in order: of two who do this at once, the second waits for the first.
    query = ADMINISTRATORS.order_by(people.c.id).with_for_update(key_share=True)
    if {row.id for row in connection.execute(query)} == {person.id}:
        raise LastAdministrator("No one else administers this server.")


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
            email=person.email,
            change=change,
            **asdict(counts),
        )


def _audit_change(ctx: RequestContext, person: Person, change: str, *, email: str = "") -> None:
    """Note a change by an administrator; `was` is the address before it."""
    action, subject, was = AuditAction.PERSON_CHANGED, f"person:{person.id}", person.email
    audit.note(ctx, action, subject, email=email or was, was=was, change=change)


def audit_person(ctx: RequestContext, action: AuditAction, person: Person) -> None:
    """Note what was done to an account."""
    audit.note(ctx, action, f"person:{person.id}", email=person.email)


# ---- in transactions of other subjects -----------------------------------------------------------

ADMINISTRATORS = select(people.c.id).where(people.c.is_admin, ~people.c.is_blocked)


def add_person(connection: Connection, person: Person) -> None:
    """Store a new person; raises `InvalidField` if the e-mail address is taken."""
    with unique_email():
        insert_row(connection, people, person)


def give_to_owner(connection: Connection, person_id: str, password_hash: str | None = None) -> None:
    """Give the account to the proven owner of its address, with another password.

    Ends its sessions and removes its passkeys: they may be another person's. One-time codes stay.
    """
    replace_password(connection, person_id, password_hash)
    connection.execute(update(people).where(people.c.id == person_id).values(is_proven=True))
    connection.execute(delete(passkeys).where(passkeys.c.person_id == person_id))


def replace_password(connection: Connection, person_id: str, password_hash: str | None) -> None:
    """Store another password and end all sessions.

    All else by which the person signs in stays: reading their mail alone must not get past it.
    """
    change = update(people).where(people.c.id == person_id)
    connection.execute(change.values(password_hash=password_hash))
    connection.execute(delete(sessions).where(sessions.c.person_id == person_id))


def remove_second_factor(connection: Connection, person_id: str) -> None:
    """Delete the one-time codes and recovery codes of a person."""
    for table in (recovery_codes, second_factors):
        connection.execute(delete(table).where(table.c.person_id == person_id))


def roles_of(connection: Connection, person_id: str) -> Mapping[str, Role]:
    """The person's role in each project, the earliest joined first."""
    query = (
        select(members.c.project_id, members.c.role)
        .where(members.c.person_id == person_id)
        .order_by(members.c.added_at, members.c.project_id)
    )
    return {row.project_id: Role(row.role) for row in connection.execute(query)}


def replace_hash(connection: Connection, person: Person, password_hash: str) -> bool:
    """Store another hash; False if the password has changed since the person was read."""
    is_same = people.c.password_hash.is_not_distinct_from(person.password_hash)
    change = update(people).where(people.c.id == person.id, is_same)
    return connection.execute(change.values(password_hash=password_hash)).rowcount == 1


@contextmanager
def unique_email() -> Iterator[None]:
    """Raise `InvalidField` for an address that another account has."""
    try:
        yield
    except IntegrityError:
        raise InvalidField("Another account has this e-mail address.", field="email") from None
