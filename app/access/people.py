"""People, and the projects they are members of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.core.access import Caller, CallerKind, Role
from app.core.errors import InvalidField, NotSignedIn
from app.db.context import Context, RequestContext
from app.db.tables import members, passkeys, people, recovery_codes, second_factors, sessions


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
    """The person's role in each project, that joined first first."""
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


# ---- in transactions of other subjects -----------------------------------------------------------

ADMINISTRATORS = select(people.c.id).where(people.c.is_admin, ~people.c.is_blocked)


def add_person(connection: Connection, person: Person) -> None:
    """Store a new person; raises `InvalidField` if the e-mail address is taken."""
    values = {column.name: getattr(person, column.name) for column in people.columns}
    with unique_email():
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


def roles_of(connection: Connection, person_id: str) -> Mapping[str, Role]:
    """The person's role in each project, that joined first first."""
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
