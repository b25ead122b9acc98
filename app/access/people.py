"""People, and the projects they are members of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Delete, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.access.creators import (
    Creation,
    RevocationCounts,
    end_made_by,
    end_made_elsewhere,
    made_by,
)
from app.core.access import Role
from app.core.errors import InvalidField, LastAdministrator
from app.db.engine import Database
from app.db.tables import (
    invitations,
    members,
    passkeys,
    people,
    recovery_codes,
    second_factors,
    sessions,
)


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


class PeopleRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, person: Person) -> None:
        """Store a new person; raises `InvalidField` if the e-mail address is taken."""
        with self._database.write() as connection:
            add_person(connection, person)

    def find(self, person_id: str) -> Person | None:
        """The person with that id."""
        return self._one(people.c.id == person_id)

    def find_by_email(self, email: str) -> Person | None:
        """The person with that address, in lower case."""
        return self._one(people.c.email == email)

    def emails(self, ids: Collection[str]) -> dict[str, str]:
        """The addresses of the people with these ids."""
        query = select(people.c.id, people.c.email).where(people.c.id.in_(ids))
        with self._database.read() as connection:
            return {row.id: row.email for row in connection.execute(query)}

    def roles(self, person_id: str) -> Mapping[str, Role]:
        """The person's role in each project, that joined first first."""
        with self._database.read() as connection:
            return roles_of(connection, person_id)

    def all_roles(self) -> Mapping[str, Mapping[str, Role]]:
        """The role of everybody in each project, by person and project."""
        query = select(members.c.person_id, members.c.project_id, members.c.role)
        roles: dict[str, dict[str, Role]] = defaultdict(dict)
        with self._database.read() as connection:
            for row in connection.execute(query.order_by(members.c.added_at)):
                roles[row.person_id][row.project_id] = Role(row.role)
        return roles

    def all(self) -> list[Person]:
        """Everybody, by name."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(people).order_by(func.lower(people.c.name), people.c.id)
            )
            return [person_from_row(row) for row in rows]

    def administrators(self) -> list[Person]:
        """Those who can let others in, by name."""
        return [person for person in self.all() if person.is_admin and not person.is_blocked]

    def has_administrator(self) -> bool:
        """Whether the server has an administrator."""
        with self._database.read() as connection:
            return connection.execute(_ADMINISTRATORS.limit(1)).first() is not None

    def rename(self, person: Person, *, name: str, email: str) -> Person:
        """Store another name and address; raises `InvalidField` if the address is taken.

        With another address, links for a new password work no longer: they were sent to the old
        one.
        """
        change = update(people).where(people.c.id == person.id).values(name=name, email=email)
        with _unique_email(), self._database.write() as connection:
            connection.execute(change)
            if email != person.email:
                connection.execute(_links_for_password(person.id))
        return replace(person, name=name, email=email)

    def set_password(self, person: Person, password_hash: str) -> bool:
        """Store the hash of another password; links to choose one work no longer.

        False if the password has changed since the person was read.
        """
        with self._database.write() as connection:
            is_same = _replace_hash(connection, person, password_hash)
            if is_same:
                connection.execute(_links_for_password(person.id))
            return is_same

    def replace_hash(self, person: Person, password_hash: str) -> bool:
        """Store another hash of the same password; False as in `set_password`."""
        with self._database.write() as connection:
            return _replace_hash(connection, person, password_hash)

    def block(self, person_id: str, now: datetime) -> dict[str, RevocationCounts]:
        """Let a person in no more: ends their sessions, and the keys and links they have made.

        Returns how many by project, raises `LastAdministrator` instead of blocking the only one.
        """
        with self._database.write() as connection:
            _require_another_administrator(connection, person_id)
            change = update(people).where(people.c.id == person_id)
            connection.execute(change.values(is_blocked=True))
            connection.execute(delete(sessions).where(sessions.c.person_id == person_id))
            return end_made_by(connection, f"person:{person_id}", now)

    def remove(self, person_id: str, now: datetime) -> dict[str, RevocationCounts]:
        """Delete a person with all that is theirs alone; ends what they have made.

        Returns how much by project, raises `LastAdministrator` instead of deleting the only one.
        """
        with self._database.write() as connection:
            _require_another_administrator(connection, person_id)
            ended = end_made_by(connection, f"person:{person_id}", now)
            connection.execute(delete(people).where(people.c.id == person_id))
            return ended

    def made_by(self, person_id: str, now: datetime) -> list[Creation]:
        """The keys and links of a person that still work, the newest first."""
        with self._database.read() as connection:
            return made_by(connection, f"person:{person_id}", now)

    def end_made(self, person_id: str, now: datetime) -> dict[str, RevocationCounts]:
        """End the keys, links and invitations of a person: how much by project."""
        with self._database.write() as connection:
            return end_made_by(connection, f"person:{person_id}", now)

    def unblock(self, person_id: str) -> None:
        """Let a person sign in again."""
        change = update(people).where(people.c.id == person_id)
        with self._database.write() as connection:
            connection.execute(change.values(is_blocked=False))

    def make_admin(self, person_id: str) -> None:
        """Let a person administer the server."""
        change = update(people).where(people.c.id == person_id).values(is_admin=True)
        with self._database.write() as connection:
            connection.execute(change)

    def end_admin(self, person_id: str, now: datetime) -> dict[str, RevocationCounts]:
        """Let a person administer the server no more: ends what they made where they are no member.

        Returns how much by project, raises `LastAdministrator`.
        """
        with self._database.write() as connection:
            _require_another_administrator(connection, person_id)
            change = update(people).where(people.c.id == person_id).values(is_admin=False)
            connection.execute(change)
            return end_made_elsewhere(connection, person_id, now)

    def _one(self, condition: Any) -> Person | None:
        with self._database.read() as connection:
            row = connection.execute(select(people).where(condition)).first()
        return None if row is None else person_from_row(row)


_ADMINISTRATORS = select(people.c.id).where(people.c.is_admin, ~people.c.is_blocked)


def add_person(connection: Connection, person: Person) -> None:
    """Store a new person; raises `InvalidField` if the e-mail address is taken."""
    values = {column.name: getattr(person, column.name) for column in people.columns}
    with _unique_email():
        connection.execute(insert(people).values(values))


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


def person_from_row(row: Row[Any]) -> Person:
    """The person in a row that has all columns of `people`."""
    return Person(**{column.name: row._mapping[column] for column in people.columns})


def roles_of(connection: Connection, person_id: str) -> Mapping[str, Role]:
    """The person's role in each project, that joined first first."""
    query = (
        select(members.c.project_id, members.c.role)
        .where(members.c.person_id == person_id)
        .order_by(members.c.added_at, members.c.project_id)
    )
    return {row.project_id: Role(row.role) for row in connection.execute(query)}


def _replace_hash(connection: Connection, person: Person, password_hash: str) -> bool:
    is_same = people.c.password_hash.is_not_distinct_from(person.password_hash)
    change = update(people).where(people.c.id == person.id, is_same)
    return connection.execute(change.values(password_hash=password_hash)).rowcount == 1


def _links_for_password(person_id: str) -> Delete:
    return delete(invitations).where(invitations.c.person_id == person_id)


@contextmanager
def _unique_email() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise InvalidField("Another account has this e-mail address.", field="email") from None


def _require_another_administrator(connection: Connection, person_id: str) -> None:
    """Administrators alone can let others in again: the last one must not lock everybody out."""
    # Locked, and in order: of two who do this at once, the second waits for the first.
    administrators = _ADMINISTRATORS.order_by(people.c.id).with_for_update(key_share=True)
    if {row.id for row in connection.execute(administrators)} == {person_id}:
        raise LastAdministrator("Nobody else administers this server.")
