"""Links that work once: to set up the server, to join it, to choose another password."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.access import audit
from app.access.accounts import clean_email
from app.access.audit import AuditAction
from app.access.creators import role_now
from app.access.keys import digest_of
from app.access.passwords import Passwords, require_good
from app.access.people import PeopleRecords, Person, add_person, give_to_owner, replace_password
from app.core.access import FIRST_PROJECT, Caller, CallerKind, Role
from app.core.errors import EntryNotFound, InvalidField, LinkClosed
from app.core.names import clean_name
from app.db.context import Context, RequestContext
from app.db.engine import Database
from app.db.sql import lock_row, lock_table
from app.db.tables import invitations, members, people, projects

# ---- rows ----------------------------------------------------------------------------------------

# The records of links that work once.


class Purpose(StrEnum):
    """What the link is for; the value is what the records have."""

    SET_UP = "set_up"
    JOIN = "join"
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A link that works once; `digest` is that of its code.

    Set up: creates the first administrator. Join: creates an account with this `email`, or uses the
    existing one, and adds it to the project, if any, in this `role`. Reset: lets `person_id` choose
    another password; `email` is set if the link was requested and mailed there, so that only its
    owner has it. `created_by` is the sender who made the link (`Caller.sender`), empty for the
    operator of the server.
    """

    digest: str
    purpose: Purpose
    created_at: datetime
    expires_at: datetime
    person_id: str | None = None
    project_id: str | None = None
    role: Role | None = None
    email: str | None = None
    created_by: str = ""
    used_at: datetime | None = None

    @property
    def is_mailed(self) -> bool:
        """Whether it was mailed: a reader of that mail can choose another password."""
        return self.purpose is Purpose.RESET and self.email is not None

    def works(self, now: datetime) -> bool:
        """Whether it was not used and has not expired."""
        return self.used_at is None and now < self.expires_at


class InvitationRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, invitation: Invitation) -> None:
        """Store it; earlier ones for the same person or address, or for set-up, stop working.

        Raises `EntryNotFound` if the project or the person is gone.
        """
        values = {column.name: getattr(invitation, column.name) for column in invitations.columns}
        is_same = invitations.c.purpose == invitation.purpose
        for column in ("person_id", "project_id", "email"):
            is_same &= invitations.c[column].is_not_distinct_from(values[column])
        with self._database.write() as connection:
            _keep_what_it_is_for(connection, invitation)
            lock_table(connection, invitations)  # The second of two at once must see the first.
            connection.execute(delete(invitations).where(is_same))
            connection.execute(insert(invitations).values(values))

    def find(self, digest: str) -> Invitation | None:
        """The one with that digest, if its maker may still make such a link.

        Whether or not it has been used or has expired.
        """
        query = select(invitations).where(invitations.c.digest == digest)
        with self._database.read() as connection:
            row = connection.execute(query).first()
            found = None if row is None else _from_row(row)
            return found if found is not None and _is_backed(connection, found) else None

    def waiting(
        self, now: datetime, *, project_id: str | None = None, email: str | None = None
    ) -> list[Invitation]:
        """Those to join that still work, to one project or address or all, the newest first."""
        query = select(invitations).where(_waiting(now)).order_by(invitations.c.created_at.desc())
        if project_id is not None:
            query = query.where(invitations.c.project_id == project_id)
        if email is not None:
            query = query.where(invitations.c.email == email)
        with self._database.read() as connection:
            found = [_from_row(row) for row in connection.execute(query)]
            return [each for each in found if _is_backed(connection, each)]

    def withdraw(self, digest: str, *, project_id: str | None = None) -> Invitation | None:
        """Remove one to join that project, or any, unless it was used; what it was."""
        condition = (invitations.c.digest == digest) & (invitations.c.purpose == Purpose.JOIN)
        condition &= invitations.c.used_at.is_(None)
        if project_id is not None:
            condition &= invitations.c.project_id == project_id
        with self._database.write() as connection:
            row = connection.execute(
                delete(invitations).where(condition).returning(*invitations.columns)
            ).first()
        return None if row is None else _from_row(row)

    def join(
        self, invitation: Invitation, person: Person, now: datetime, *, by_link: bool = True
    ) -> dict[str, Role]:
        """Use it up and store the person; returns what they are in which project now.

        Raises `LinkClosed`, or `InvalidField` for the e-mail.

        Who comes otherwise than by its link has proven that the address is theirs, and uses up all
        that wait for it. A link alone proves that only if an administrator has made it: a manager
        may have opened it.
        """
        with self._used_up(invitation, now) as connection:
            is_proven = not by_link or _proves(connection, invitation)
            add_person(connection, replace(person, is_proven=is_proven))
            others = [] if by_link else _use_up_others(connection, person.email, now)
            used = {each.project_id: each for each in (*others, invitation)}
            for each in used.values():
                _add_member(connection, each, person.id, now)
        return {
            project: each.role
            for project, each in used.items()
            if project is not None and each.role is not None
        }

    def accept(self, invitation: Invitation, person_id: str, now: datetime) -> None:
        """Use it up for a person who has an account; raises as `join` does.

        Raises `InvalidField` for a member of the project.
        """
        with self._used_up(invitation, now) as connection:
            _add_member(connection, invitation, person_id, now)
            if _proves(connection, invitation):
                is_theirs = (people.c.id == person_id) & (people.c.email == invitation.email)
                connection.execute(update(people).where(is_theirs).values(is_proven=True))

    def reset(self, invitation: Invitation, password_hash: str | None, now: datetime) -> None:
        """Use it up and store the person's password; as `join`.

        Ends all their sessions. Of an administrator, it also removes their passkeys, as somebody
        else may have added one, and ends all mailed links.
        """
        person_id = invitation.person_id or ""
        with self._used_up(invitation, now) as connection:
            if invitation.is_mailed:
                replace_password(connection, person_id, password_hash)
                return
            give_to_owner(connection, person_id, password_hash)
            connection.execute(delete(invitations).where(invitations.c.person_id == person_id))

    def remove_old(self, now: datetime) -> None:
        """Remove those that work no longer."""
        with self._database.write() as connection:
            connection.execute(delete(invitations).where(invitations.c.expires_at <= now))

    @contextmanager
    def _used_up(self, invitation: Invitation, now: datetime) -> Iterator[Connection]:
        """A transaction in which it works for the last time: only one of two that race wins."""
        works = invitations.c.used_at.is_(None) & (invitations.c.expires_at > now)
        change = update(invitations).where(invitations.c.digest == invitation.digest, works)
        with self._database.write() as connection:
            if invitation.person_id is not None:
                lock_row(connection, people.c.id, invitation.person_id)
            is_backed = _is_backed(connection, invitation, is_kept=True)
            if connection.execute(change.values(used_at=now)).rowcount != 1:
                raise LinkClosed("The link was used or has expired. Ask for a new one.")
            if not is_backed:
                raise LinkClosed(
                    "The person who made the link can no longer invite others. Ask for a new one."
                )
            yield connection


def _keep_what_it_is_for(connection: Connection, invitation: Invitation) -> None:
    """Keep its project and its person until the transaction ends; see `locks`."""
    for key, value, kind in (
        (projects.c.id, invitation.project_id, "project"),
        (people.c.id, invitation.person_id, "person"),
    ):
        row = select(key).where(key == value).with_for_update(read=True, key_share=True)
        if value is not None and connection.execute(row).first() is None:
            raise EntryNotFound(f"There is no such {kind}.")


def _waiting(now: datetime) -> ColumnElement[bool]:
    """Those to join that still work."""
    is_unused = invitations.c.used_at.is_(None) & (invitations.c.expires_at > now)
    return (invitations.c.purpose == Purpose.JOIN) & is_unused


def _is_backed(connection: Connection, invitation: Invitation, *, is_kept: bool = False) -> bool:
    """Whether its maker may do now what the link does: manage that project, or the server."""
    role = role_now(connection, invitation.created_by, invitation.project_id, is_kept=is_kept)
    return role is Role.MANAGER


def _proves(connection: Connection, invitation: Invitation) -> bool:
    """Whether who opens the link can be trusted to have the address: an administrator made it."""
    return role_now(connection, invitation.created_by, None) is Role.MANAGER


def _add_member(
    connection: Connection, invitation: Invitation, person_id: str, now: datetime
) -> None:
    """Let the person into the project that it is to, if any."""
    if invitation.project_id is None or invitation.role is None:
        return
    values = {"project_id": invitation.project_id, "role": invitation.role}
    try:
        connection.execute(insert(members).values(**values, person_id=person_id, added_at=now))
    except IntegrityError:
        raise InvalidField("This person is a member already.", field="email") from None


def _use_up_others(connection: Connection, email: str, now: datetime) -> list[Invitation]:
    is_meant = _waiting(now) & (invitations.c.email == email)
    change = update(invitations).where(is_meant).values(used_at=now)
    found = [_from_row(row) for row in connection.execute(change.returning(*invitations.columns))]
    return [each for each in found if _is_backed(connection, each, is_kept=True)]


def _from_row(row: Row[Any]) -> Invitation:
    role = None if row.role is None else Role(row.role)
    return Invitation(**{**row._mapping, "purpose": Purpose(row.purpose), "role": role})


# ---- use cases -----------------------------------------------------------------------------------


LIFETIMES = {
    Purpose.SET_UP: timedelta(days=1),
    Purpose.JOIN: timedelta(days=7),
    Purpose.RESET: timedelta(days=1),
}

CODE_BYTES = 24
"""192 random bits."""


class Invitations:
    """Makes such links, and does what they are for.

    The codes are shown to their makers; only their digests are stored.
    """

    def __init__(self, ctx: Context, passwords: Passwords) -> None:
        self._ctx = ctx
        self._records = InvitationRecords(ctx.database)
        self._people = PeopleRecords(ctx.database)
        self._passwords = passwords

    def to_set_up(self) -> str | None:
        """The code of a new link that makes the first administrator; None if there is one."""
        return None if self._people.has_administrator() else self._make(Purpose.SET_UP)

    def to_join(
        self,
        ctx: RequestContext,
        email: str,
        *,
        project_id: str | None = None,
        role: Role | None = None,
    ) -> str:
        """The code of a link that makes an account for that address, or lets its account in.

        It works as long as its maker manages the project, or the server if it is to no project.
        Raises `InvalidField` if there is nothing to let it into.
        """
        email = clean_email(email)
        person = self._people.find_by_email(email)
        if person is not None and project_id is None:
            raise InvalidField("This person has an account already.", field="email")
        if person is not None and project_id in self._people.roles(person.id):
            raise InvalidField("This person is a member already.", field="email")
        by = ctx.caller.sender
        code = self._make(Purpose.JOIN, by, email=email, project_id=project_id, role=role)
        about = {"email": email, "role": role}
        audit.note(ctx, AuditAction.INVITATION_MADE, project=project_id or "", details=about)
        return code

    def to_reset(self, ctx: RequestContext, person: Person) -> str:
        """The code of a link by which that person chooses another password.

        It works as long as its maker administers the server.
        """
        code = self._make(Purpose.RESET, ctx.caller.sender, person_id=person.id)
        subject, about = f"person:{person.id}", {"email": person.email}
        audit.note(ctx, AuditAction.PASSWORD_LINK_MADE, subject, details=about)
        return code

    def to_reset_by_mail(self, person: Person) -> str:
        """The code of such a link for a person who has asked for it themselves, or a stranger has.

        Earlier ones of this kind stop working, those of administrators do not.
        """
        return self._make(Purpose.RESET, person_id=person.id, email=person.email)

    def find(self, code: str, purpose: Purpose) -> Invitation:
        """What a link is for; raises `LinkClosed` if it does not work (any more)."""
        found = self._records.find(digest_of(code))
        if found is None or found.purpose is not purpose or not found.works(self._ctx.clock()):
            raise LinkClosed("The link was used or has expired. Ask for a new one.")
        if purpose is Purpose.SET_UP and self._people.has_administrator():
            raise LinkClosed("This server is set up already.")
        if purpose is Purpose.JOIN and found.project_id is None and self.is_to_known(found):
            raise LinkClosed("You have an account already. Sign in.")
        return found

    def is_to_known(self, invitation: Invitation) -> bool:
        """Whether there is an account with the address that was invited."""
        return self._people.find_by_email(invitation.email or "") is not None

    def waiting(self, project_id: str | None = None) -> list[Invitation]:
        """Those to a project, or all, that were not accepted yet, the newest first."""
        return self._records.waiting(self._ctx.clock(), project_id=project_id)

    def waiting_for(self, person: Person) -> list[Invitation]:
        """Those to projects by the person's address, the newest first.

        Empty as long as the address is not proven: see `Person.is_proven`.
        """
        if not person.is_proven:
            return []
        found = self._records.waiting(self._ctx.clock(), email=person.email)
        return [each for each in found if each.project_id is not None]

    def waiting_one(self, person: Person, digest: str) -> Invitation:
        """One of `waiting_for`; raises `LinkClosed` if it is none of them (any more)."""
        for each in self.waiting_for(person):
            if each.digest == digest:
                return each
        raise LinkClosed("The invitation was withdrawn, or has expired.")

    def accept_waiting(self, ctx: RequestContext, person: Person, digest: str) -> Invitation:
        """Let the person into the project; raises `LinkClosed`, `InvalidField`."""
        invitation = self.waiting_one(person, digest)
        self._records.accept(invitation, person.id, ctx.clock())
        _audit_joining(ctx, invitation, person.email)
        return invitation

    def withdraw(self, ctx: RequestContext, digest: str, project_id: str | None = None) -> None:
        """Let a link to join a project, or any, work no longer, if there is one."""
        found = self._records.withdraw(digest, project_id=project_id)
        if found is not None:
            project, about = found.project_id or "", {"email": found.email, "role": found.role}
            audit.note(ctx, AuditAction.INVITATION_REMOVED, project=project, details=about)

    def remove_old(self) -> None:
        """Remove those that have expired."""
        self._records.remove_old(self._ctx.clock())

    def set_up(
        self, ctx: RequestContext, code: str, *, email: str, name: str, password: str
    ) -> Person:
        """The first administrator, manager of the first project."""
        invitation = self.find(code, Purpose.SET_UP)
        person = self._join(invitation, email=email, name=name, password=password)
        _audit_by_link(ctx, AuditAction.PERSON_ADDED, person)
        return person

    def join(self, ctx: RequestContext, code: str, *, name: str, password: str) -> Person:
        """The new person; raises `LinkClosed` or `InvalidField`."""
        invitation = self.find(code, Purpose.JOIN)
        email = invitation.email or ""
        person = self._join(invitation, email=email, name=name, password=password)
        _audit_by_link(ctx, AuditAction.PERSON_ADDED, person)
        if invitation.project_id is not None:
            _audit_joining(replace(ctx, caller=_caller(person)), invitation, person.email)
        return person

    def accept(self, ctx: RequestContext, code: str, person: Person) -> Invitation:
        """Let a person who has an account into the project; raises `LinkClosed`, `InvalidField`.

        The link may be used for any account, as for a new one.
        """
        invitation = self.find(code, Purpose.JOIN)
        if invitation.project_id is None:
            raise InvalidField("This link makes an account. You have one already.", field="email")
        self._records.accept(invitation, person.id, ctx.clock())
        _audit_joining(ctx, invitation, person.email)
        return invitation

    def choose_password(self, ctx: RequestContext, code: str, password: str) -> Person:
        """Whose password it is now; their sessions have ended.

        Their passkeys are removed, unless the link was mailed: see `InvitationRecords.reset`.
        """
        invitation = self.find(code, Purpose.RESET)
        person = self._people.find(invitation.person_id or "")
        if person is None or person.is_blocked:
            raise LinkClosed("The account is blocked.")
        if invitation.is_mailed and invitation.email != person.email:
            raise LinkClosed("The address of the account was changed. Ask for a new link.")
        stored = self._hash(password, about=[person.email, person.name])
        self._records.reset(invitation, stored, ctx.clock())
        _audit_by_link(ctx, AuditAction.PASSWORD_CHANGED, person)
        return replace(person, password_hash=stored, is_proven=True)

    def _join(self, invitation: Invitation, *, email: str, name: str, password: str) -> Person:
        email, name = clean_email(email), clean_name(name)
        stored = self._hash(password, about=[email, name])
        person = Person(
            id=self._ctx.new_id(),
            email=email,
            name=name,
            created_at=self._ctx.clock(),
            password_hash=stored,
            is_admin=invitation.purpose is Purpose.SET_UP,
        )
        self._records.join(invitation, person, self._ctx.clock())
        return person

    def _hash(self, password: str, *, about: Sequence[str]) -> str | None:
        """What is stored of a good password; nothing on a server without passwords."""
        if not self._ctx.settings.has_passwords:
            return None
        require_good(password, about)
        return self._passwords.hash(password)

    def _make(
        self,
        purpose: Purpose,
        by: str = "",
        *,
        person_id: str | None = None,
        email: str | None = None,
        project_id: str | None = None,
        role: Role | None = None,
    ) -> str:
        code, now = secrets.token_urlsafe(CODE_BYTES), self._ctx.clock()
        is_first = purpose is Purpose.SET_UP
        invitation = Invitation(
            digest=digest_of(code),
            purpose=purpose,
            created_at=now,
            expires_at=now + LIFETIMES[purpose],
            person_id=person_id,
            project_id=FIRST_PROJECT if is_first else project_id,
            role=Role.MANAGER if is_first else role,
            email=email,
            created_by=by,
        )
        self._records.add(invitation)
        return code


def _caller(person: Person) -> Caller:
    return Caller(kind=CallerKind.PERSON, id=person.id, name=person.name)


def _audit_by_link(ctx: RequestContext, action: AuditAction, person: Person) -> None:
    caller, about = _caller(person), {"email": person.email, "by": "link"}
    audit.note(ctx, action, caller.actor, caller=caller, details=about)


def _audit_joining(ctx: RequestContext, invitation: Invitation, email: str) -> None:
    """Note who has joined, and which address was invited: any account may take the link."""
    about = {
        "email": email,
        "invited": invitation.email,
        "role": invitation.role,
        "by": "link",
    }
    project = invitation.project_id
    audit.note(ctx, AuditAction.MEMBER_ADDED, ctx.caller.actor, project=project, details=about)
