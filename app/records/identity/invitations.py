"""The records of links that work once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.domain.access import Role
from app.domain.errors import InvalidField, LinkClosed
from app.records.engine import Database
from app.records.identity.people import Person, add_person
from app.records.identity.tables import invitations, members, passkeys, people, sessions


class Purpose(StrEnum):
    """What somebody does with the link; the value is what the records have."""

    SET_UP = "set_up"
    JOIN = "join"
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A link that works once; `digest` is that of its code.

    To set up: makes the first administrator. To join: makes a person with that `email`, member of a
    project in that `role`, if there is one; whoever has an account joins the project with it. To
    reset: lets `person_id` choose another password.
    """

    digest: str
    purpose: Purpose
    created_at: datetime
    expires_at: datetime
    person_id: str | None = None
    project_id: str | None = None
    role: Role | None = None
    email: str | None = None
    used_at: datetime | None = None

    def works(self, now: datetime) -> bool:
        """Whether it was not used and has not expired."""
        return self.used_at is None and now < self.expires_at


class InvitationRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, invitation: Invitation) -> None:
        """Store it; earlier ones for the same person or address, or to set up, work no longer."""
        values = {column.name: getattr(invitation, column.name) for column in invitations.columns}
        is_same = invitations.c.purpose == invitation.purpose
        for column in ("person_id", "project_id", "email"):
            is_same &= invitations.c[column].is_not_distinct_from(values[column])
        with self._database.write() as connection:
            connection.execute(delete(invitations).where(is_same))
            connection.execute(insert(invitations).values(values))

    def find(self, digest: str) -> Invitation | None:
        """The one with that digest, whether or not it still works."""
        query = select(invitations).where(invitations.c.digest == digest)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else _from_row(row)

    def waiting(self, now: datetime) -> list[Invitation]:
        """Those to join that still work, the newest first."""
        query = select(invitations).where(_waiting(now)).order_by(invitations.c.created_at.desc())
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(query)]

    def withdraw(self, digest: str) -> bool:
        """Remove it; whether it was there."""
        with self._database.write() as connection:
            gone = connection.execute(delete(invitations).where(invitations.c.digest == digest))
            return gone.rowcount == 1

    def join(
        self, invitation: Invitation, person: Person, now: datetime, *, is_proven: bool = False
    ) -> None:
        """Use it up and store the person; raises `LinkClosed`, or `InvalidField` for the e-mail.

        If the address is proven to be theirs, they use up all that wait for it. A link alone proves
        nothing: whoever has made it for one project has seen it too.
        """
        with self._used_up(invitation, now) as connection:
            add_person(connection, person)
            others = _use_up_others(connection, person.email, now) if is_proven else []
            used = {each.project_id: each for each in (*others, invitation)}
            for each in used.values():
                _add_member(connection, each, person.id, now)

    def accept(self, invitation: Invitation, person_id: str, now: datetime) -> None:
        """Use it up for somebody who has an account; raises as `join` does.

        Raises `InvalidField` for a member of the project.
        """
        with self._used_up(invitation, now) as connection:
            _add_member(connection, invitation, person_id, now)

    def reset(self, invitation: Invitation, password_hash: str | None, now: datetime) -> None:
        """Use it up and store the person's password; as `join`.

        Ends all their sessions and removes their passkeys: somebody else may have added one.
        """
        with self._used_up(invitation, now) as connection:
            change = update(people).where(people.c.id == invitation.person_id)
            connection.execute(change.values(password_hash=password_hash))
            for table in (sessions, passkeys):
                of_person = table.c.person_id == invitation.person_id
                connection.execute(delete(table).where(of_person))

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
            if connection.execute(change.values(used_at=now)).rowcount != 1:
                raise LinkClosed("The link was used or has expired. Ask for a new one.")
            yield connection


def _waiting(now: datetime) -> ColumnElement[bool]:
    """Those to join that still work."""
    is_unused = invitations.c.used_at.is_(None) & (invitations.c.expires_at > now)
    return (invitations.c.purpose == Purpose.JOIN) & is_unused


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
    found = [_from_row(row) for row in connection.execute(select(invitations).where(is_meant))]
    connection.execute(update(invitations).where(is_meant).values(used_at=now))
    return found


def _from_row(row: Row[Any]) -> Invitation:
    role = None if row.role is None else Role(row.role)
    return Invitation(**{**row._mapping, "purpose": Purpose(row.purpose), "role": role})
