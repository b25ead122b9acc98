"""Links that work once: to set up the server, to join it, to choose another password."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from threading import Thread
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.access import audit
from app.access.attempts import Backoff, PasswordChecks
from app.access.audit import AuditAction
from app.access.creators import role_now
from app.access.keys import digest_of
from app.access.mail import Mail
from app.access.passwords import Passwords, require_good
from app.access.people import (
    Person,
    add_person,
    clean_email,
    find_by_email,
    find_person,
    give_to_owner,
    has_administrator,
    replace_password,
    roles_now,
)
from app.core.access import ANONYMOUS, FIRST_PROJECT, Role
from app.core.addresses import is_loopback, network_of
from app.core.errors import EntryNotFound, InvalidField, LinkClosed, TooManyAttempts, UploadError
from app.core.names import clean_name
from app.db.context import Context, RequestContext
from app.db.sql import insert_row, lock_row, lock_table
from app.db.tables import invitations, members, people, projects

# ---- rows ----------------------------------------------------------------------------------------


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

    @classmethod
    def of(cls, row: Row[Any]) -> Invitation:
        """The invitation of a row of `db.tables.invitations`."""
        role = None if row.role is None else Role(row.role)
        return cls(**{**row._mapping, "purpose": Purpose(row.purpose), "role": role})

    def works(self, now: datetime) -> bool:
        """Whether it was not used and has not expired."""
        return self.used_at is None and now < self.expires_at


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
        self._passwords = passwords

    def to_set_up(self) -> str | None:
        """The code of a new link that makes the first administrator; None if there is one."""
        return None if has_administrator(self._ctx) else self._make(Purpose.SET_UP)

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
        person = find_by_email(ctx, email)
        if person is not None and project_id is None:
            raise InvalidField("This person has an account already.", field="email")
        if person is not None and project_id in roles_now(ctx, person.id):
            raise InvalidField("This person is a member already.", field="email")
        by = ctx.caller.sender
        code = self._make(Purpose.JOIN, by, email=email, project_id=project_id, role=role)
        project = project_id or ""
        audit.note(ctx, AuditAction.INVITATION_MADE, project=project, email=email, role=role)
        return code

    def to_reset(self, ctx: RequestContext, person: Person) -> str:
        """The code of a link by which that person chooses another password.

        It works as long as its maker administers the server.
        """
        code = self._make(Purpose.RESET, ctx.caller.sender, person_id=person.id)
        subject = f"person:{person.id}"
        audit.note(ctx, AuditAction.PASSWORD_LINK_MADE, subject, email=person.email)
        return code

    def to_reset_by_mail(self, person: Person) -> str:
        """The code of such a link that was requested with the person's address, by them or others.

        Earlier ones of this kind stop working, those of administrators do not.
        """
        return self._make(Purpose.RESET, person_id=person.id, email=person.email)

    def find(self, code: str, purpose: Purpose) -> Invitation:
        """What a link is for; raises `LinkClosed` if it does not work (any more)."""
        now, query = self._ctx.clock(), select(invitations)
        query = query.where(invitations.c.digest == digest_of(code))
        with self._ctx.database.read() as connection:
            row = connection.execute(query).first()
            found = None if row is None else Invitation.of(row)
            is_backed = found is not None and _is_backed(connection, found)
        if found is None or found.purpose is not purpose or not is_backed or not found.works(now):
            raise LinkClosed("The link was used or has expired. Ask for a new one.")
        if purpose is Purpose.SET_UP and has_administrator(self._ctx):
            raise LinkClosed("This server is set up already.")
        is_for_new = purpose is Purpose.JOIN and found.project_id is None
        if is_for_new and find_by_email(self._ctx, found.email or "") is not None:
            raise LinkClosed("You have an account already. Sign in.")
        return found

    def waiting(
        self, project_id: str | None = None, *, email: str | None = None
    ) -> list[Invitation]:
        """Those to join that still work, to one project or address or all, the newest first."""
        is_waiting = _is_waiting(self._ctx.clock())
        query = select(invitations).where(is_waiting).order_by(invitations.c.created_at.desc())
        if project_id is not None:
            query = query.where(invitations.c.project_id == project_id)
        if email is not None:
            query = query.where(invitations.c.email == email)
        with self._ctx.database.read() as connection:
            found = [Invitation.of(row) for row in connection.execute(query)]
            return [each for each in found if _is_backed(connection, each)]

    def waiting_for(self, person: Person) -> list[Invitation]:
        """Those to projects by the person's address, the newest first.

        Empty as long as the address is not proven: see `Person.is_proven`.
        """
        if not person.is_proven:
            return []
        found = self.waiting(email=person.email)
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
        self._accept(ctx, invitation, person)
        return invitation

    def withdraw(self, ctx: RequestContext, digest: str, project_id: str | None = None) -> None:
        """Let a link to join a project, or any, work no longer, if there is one."""
        is_it = (invitations.c.digest == digest) & (invitations.c.purpose == Purpose.JOIN)
        is_it &= invitations.c.used_at.is_(None)
        if project_id is not None:
            is_it &= invitations.c.project_id == project_id
        change = delete(invitations).where(is_it).returning(*invitations.columns)
        with ctx.database.write() as connection:
            row = connection.execute(change).first()
        if row is not None:
            found = Invitation.of(row)
            action, project = AuditAction.INVITATION_REMOVED, found.project_id or ""
            audit.note(ctx, action, project=project, email=found.email, role=found.role)

    def remove_old(self) -> None:
        """Remove those that have expired."""
        is_old = invitations.c.expires_at <= self._ctx.clock()
        with self._ctx.database.write() as connection:
            connection.execute(delete(invitations).where(is_old))

    def set_up(
        self, ctx: RequestContext, code: str, *, email: str, name: str, password: str
    ) -> Person:
        """The first administrator, manager of the first project."""
        invitation = self.find(code, Purpose.SET_UP)
        person = self._join(ctx, invitation, email=email, name=name, password=password)
        _audit_by_link(ctx, AuditAction.PERSON_ADDED, person)
        return person

    def join(self, ctx: RequestContext, code: str, *, name: str, password: str) -> Person:
        """The new person; raises `LinkClosed` or `InvalidField`."""
        invitation = self.find(code, Purpose.JOIN)
        email = invitation.email or ""
        person = self._join(ctx, invitation, email=email, name=name, password=password)
        _audit_by_link(ctx, AuditAction.PERSON_ADDED, person)
        if invitation.project_id is not None:
            _audit_joining(replace(ctx, caller=person.caller), invitation, person.email)
        return person

    def join_by_address(self, invitation: Invitation, person: Person) -> dict[str, Role]:
        """Store a new person who has proven that the address is theirs.

        Uses up all invitations that wait for it; returns the role by project. Raises as `join`.
        """
        now = self._ctx.clock()
        waiting = _is_waiting(now) & (invitations.c.email == person.email)
        use_up = update(invitations).where(waiting).values(used_at=now)
        with _used_up(self._ctx, invitation) as connection:
            add_person(connection, person)
            rows = connection.execute(use_up.returning(*invitations.columns)).all()
            others = [Invitation.of(row) for row in rows]
            others = [each for each in others if _is_backed(connection, each, is_kept=True)]
            used = {each.project_id: each for each in (*others, invitation)}
            for each in used.values():
                _add_member(connection, each, person.id, now)
        return {
            project: each.role
            for project, each in used.items()
            if project is not None and each.role is not None
        }

    def accept(self, ctx: RequestContext, code: str, person: Person) -> Invitation:
        """Let a person who has an account into the project; raises `LinkClosed`, `InvalidField`.

        The link may be used for any account, as for a new one.
        """
        invitation = self.find(code, Purpose.JOIN)
        if invitation.project_id is None:
            raise InvalidField("This link makes an account. You have one already.", field="email")
        self._accept(ctx, invitation, person)
        return invitation

    def choose_password(self, ctx: RequestContext, code: str, password: str) -> Person:
        """Whose password it is now; their sessions have ended.

        A link of an administrator also ends mailed links, and removes the passkeys, as another
        person may have added one. A mailed link changes the password alone.
        """
        invitation = self.find(code, Purpose.RESET)
        person = find_person(ctx, invitation.person_id or "")
        if person is None or person.is_blocked:
            raise LinkClosed("The account is blocked.")
        if invitation.is_mailed and invitation.email != person.email:
            raise LinkClosed("The address of the account was changed. Ask for a new link.")
        stored = self._hash(password, about=[person.email, person.name])
        with _used_up(ctx, invitation) as connection:
            if invitation.is_mailed:
                replace_password(connection, person.id, stored)
            else:
                give_to_owner(connection, person.id, stored)
                connection.execute(delete(invitations).where(invitations.c.person_id == person.id))
        _audit_by_link(ctx, AuditAction.PASSWORD_CHANGED, person)
        return replace(person, password_hash=stored, is_proven=True)

    def _join(
        self, ctx: RequestContext, invitation: Invitation, *, email: str, name: str, password: str
    ) -> Person:
        """Store a new person, who has proven nothing but that they have the link.

        A manager may have opened it: it proves the address only if an administrator has made it.
        """
        email, name = clean_email(email), clean_name(name)
        person = Person(
            id=ctx.new_id(),
            email=email,
            name=name,
            created_at=ctx.clock(),
            password_hash=self._hash(password, about=[email, name]),
            is_admin=invitation.purpose is Purpose.SET_UP,
        )
        with _used_up(ctx, invitation) as connection:
            add_person(connection, replace(person, is_proven=_proves(connection, invitation)))
            _add_member(connection, invitation, person.id, ctx.clock())
        return person

    def _accept(self, ctx: RequestContext, invitation: Invitation, person: Person) -> None:
        with _used_up(ctx, invitation) as connection:
            _add_member(connection, invitation, person.id, ctx.clock())
            if _proves(connection, invitation):
                is_theirs = (people.c.id == person.id) & (people.c.email == invitation.email)
                connection.execute(update(people).where(is_theirs).values(is_proven=True))
        _audit_joining(ctx, invitation, person.email)

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
        """The code of a new link; earlier ones for the same person or address stop working.

        Those for set-up likewise. Raises `EntryNotFound` if the project or the person is gone.
        """
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
        is_same = invitations.c.purpose == purpose
        for column in ("person_id", "project_id", "email"):
            is_same &= invitations.c[column].is_not_distinct_from(getattr(invitation, column))
        with self._ctx.database.write() as connection:
            # Its project and its person must stay until the transaction ends.
            for key, value, kind in (
                (projects.c.id, invitation.project_id, "project"),
                (people.c.id, person_id, "person"),
            ):
                row = select(key).where(key == value).with_for_update(read=True, key_share=True)
                if value is not None and connection.execute(row).first() is None:
                    raise EntryNotFound(f"There is no such {kind}.")
            lock_table(connection, invitations)  # The second of two at once must see the first.
            connection.execute(delete(invitations).where(is_same))
            insert_row(connection, invitations, invitation)
        return code


def _audit_by_link(ctx: RequestContext, action: AuditAction, person: Person) -> None:
    caller = person.caller
    audit.note(ctx, action, caller.actor, caller=caller, email=person.email, by="link")


def _audit_joining(ctx: RequestContext, invitation: Invitation, email: str) -> None:
    """Note who has joined, and which address was invited: any account may take the link."""
    audit.note(
        ctx,
        AuditAction.MEMBER_ADDED,
        ctx.caller.actor,
        project=invitation.project_id,
        email=email,
        invited=invitation.email,
        role=invitation.role,
        by="link",
    )


@contextmanager
def _used_up(ctx: Context, invitation: Invitation) -> Iterator[Connection]:
    """A transaction in which it works for the last time: only one of two that race wins.

    Raises `LinkClosed`.
    """
    now = ctx.clock()
    works = invitations.c.used_at.is_(None) & (invitations.c.expires_at > now)
    change = update(invitations).where(invitations.c.digest == invitation.digest, works)
    with ctx.database.write() as connection:
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


def _is_waiting(now: datetime) -> ColumnElement[bool]:
    """Those to join that still work."""
    is_unused = invitations.c.used_at.is_(None) & (invitations.c.expires_at > now)
    return (invitations.c.purpose == Purpose.JOIN) & is_unused


def _is_backed(connection: Connection, invitation: Invitation, *, is_kept: bool = False) -> bool:
    """Whether its maker may do now what the link does: manage that project, or the server."""
    role = role_now(connection, invitation.created_by, invitation.project_id, is_kept=is_kept)
    return role is Role.MANAGER


def _proves(connection: Connection, invitation: Invitation) -> bool:
    """Whether the link shows that the address is theirs: an administrator has made it."""
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


# ---- forgotten passwords -------------------------------------------------------------------------

OF_ACCOUNT = Backoff(free=1, first=timedelta(minutes=15), most=timedelta(days=1))
"""Mails to an account: after each, the next one waits twice as long. A day has eight at most."""

OF_NETWORK = Backoff(free=20)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForgottenPasswords:
    """Works if the server can send mail. Its links begin with the settings' `link_url`.

    They never begin with the host of the request, which the client chooses.
    """

    ctx: Context
    invitations: Invitations
    checks: PasswordChecks
    mail: Mail

    @property
    def is_on(self) -> bool:
        """Whether this server can send mail."""
        return self.mail.is_on

    def send_link_later(self, email: str, *, address: str) -> None:
        """Send a link to the account with this e-mail address, if there is one.

        Returns before it looks: neither the response nor its time tells who has an account.
        Raises `TooManyAttempts` if a network asks too often.
        """
        if not is_loopback(address):  # All clients of a proxy that names none.
            self.checks.count({f"forgotten:{network_of(address)}": OF_NETWORK})
        given = (email.strip().lower(), address)
        Thread(target=self._send_link, args=given, name="forgotten password", daemon=True).start()

    def _send_link(self, email: str, address: str) -> None:
        try:
            self._try_to_send_link(email, address)
        except UploadError as error:
            log.error("cannot make a link for a new password: %s", error)
        except Exception:  # A mistake of ours: a thread would print it to stderr, not to the log.
            log.exception("cannot make a link for a new password")

    def _try_to_send_link(self, email: str, address: str) -> None:
        """A person without a password signs in elsewhere, where they can be blocked."""
        person = find_by_email(self.ctx, email)
        if person is None or person.is_blocked or person.password_hash is None:
            return
        subject, is_sent = f"forgotten:{person.id}", False
        try:
            self.checks.count({subject: OF_ACCOUNT})
        except TooManyAttempts:
            return
        try:
            code = self.invitations.to_reset_by_mail(person)
            url = f"{self.ctx.settings.link_url}/reset/{code}"
            is_sent = self.mail.send(
                person.email,
                subject="A new password for Sluice",
                text="Someone, probably you, has asked for a new password for your account.\n"
                f"Open this link within a day to choose one:\n\n{url}\n\n"
                "If it was not you, do nothing: your password stays as it is.\n",
            )
        finally:
            if not is_sent:  # They read that it is on its way: the next one must not wait.
                self.checks.forget(subject)
        if is_sent:  # Otherwise strangers could fill the log while the mail server is away.
            audit.note(
                self.ctx.acting(ANONYMOUS, address=address),
                AuditAction.PASSWORD_LINK_MADE,
                f"person:{person.id}",
                email=person.email,
                by="mail",
            )
