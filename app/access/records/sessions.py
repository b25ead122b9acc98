"""The records of sessions: who is signed in, from where."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from app.access.records.people import Person, person_from_row, roles_of
from app.core.access import Role
from app.core.errors import NotAllowed, WrongCredentials
from app.db.engine import Database
from app.db.tables import people, sessions

BLOCKED = "Your account is blocked. An administrator can let you in again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A browser in which a person is signed in; `digest` is that of its cookie.

    `method` is how they signed in; `project_id` is the project last chosen.
    """

    digest: str
    id: str
    person_id: str
    method: str
    created_at: datetime
    active_at: datetime
    expires_at: datetime
    address: str
    agent: str
    project_id: str | None = None


class SessionRecords:
    """Every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, session: Session, *, instead_of: str | None, password_hash: str | None = None
    ) -> None:
        """Store a new session, and end that of the same browser and all expired ones.

        With a `password_hash`, only as long as it is the person's: checking a password may have
        taken long. Raises `WrongCredentials`, and `NotAllowed` for who is blocked.
        """
        values = {column.name: getattr(session, column.name) for column in sessions.columns}
        is_over = sessions.c.expires_at <= session.created_at
        if instead_of is not None:
            is_over |= sessions.c.digest == instead_of
        with self._database.write() as connection:
            _require_unchanged(connection, session.person_id, password_hash)
            _note_visit(connection, session.person_id, session.created_at)
            connection.execute(delete(sessions).where(is_over))
            connection.execute(insert(sessions).values(values))

    def find(self, digest: str) -> tuple[Session, Person, Mapping[str, Role]] | None:
        """The session with that digest, whose it is, and their role in each project."""
        query = (
            select(sessions, people)
            .join(people, people.c.id == sessions.c.person_id)
            .where(sessions.c.digest == digest)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
            if row is None:
                return None
            person = person_from_row(row)
            return _from_row(row), person, roles_of(connection, person.id)

    def note_use(
        self, digest: str, now: datetime, *, every: timedelta, expires_at: datetime
    ) -> None:
        """Note that the session was used, unless that was noted a moment ago: less than `every`."""
        is_due = (sessions.c.digest == digest) & (sessions.c.active_at < now - every)
        change = update(sessions).where(is_due).values(active_at=now, expires_at=expires_at)
        with self._database.write() as connection:
            whose = connection.execute(select(sessions.c.person_id).where(is_due)).scalar()
            if whose is not None:
                _note_visit(connection, whose, now)
                connection.execute(change)

    def set_method(self, session_id: str, method: str, *, unless: Collection[str]) -> None:
        """Note how the person has signed in, unless it was in one of these ways."""
        is_meant = (sessions.c.id == session_id) & sessions.c.method.not_in(unless)
        change = update(sessions).where(is_meant)
        with self._database.write() as connection:
            connection.execute(change.values(method=method))

    def choose_project(self, session_id: str, project_id: str) -> None:
        """Note the project that the person has chosen."""
        change = update(sessions).where(sessions.c.id == session_id)
        with self._database.write() as connection:
            connection.execute(change.values(project_id=project_id))

    def of_person(self, person_id: str, now: datetime) -> list[Session]:
        """The sessions of a person that have not expired, the last used first."""
        query = (
            select(sessions)
            .where(sessions.c.person_id == person_id, sessions.c.expires_at > now)
            .order_by(sessions.c.active_at.desc(), sessions.c.id)
        )
        with self._database.read() as connection:
            return [_from_row(row) for row in connection.execute(query)]

    def end(self, digest: str) -> None:
        """End the session with that digest, if there is one."""
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.digest == digest))

    def end_of_person(self, person_id: str, *, only: str = "", but: str = "") -> int:
        """End the session with the id `only`, or all except that with the id `but`; how many."""
        condition = sessions.c.person_id == person_id
        condition &= sessions.c.id == only if only else sessions.c.id != but
        with self._database.write() as connection:
            return connection.execute(delete(sessions).where(condition)).rowcount


def _require_unchanged(connection: Connection, person_id: str, password_hash: str | None) -> None:
    """Raise unless the person may still come in; nobody changes that until the transaction ends."""
    query = select(people.c.is_blocked, people.c.password_hash).where(people.c.id == person_id)
    person = connection.execute(query.with_for_update(key_share=True)).first()
    if person is None or password_hash not in {None, person.password_hash}:
        raise WrongCredentials("The account has changed in the meantime. Sign in again.")
    if person.is_blocked:
        raise NotAllowed(BLOCKED)


def _note_visit(connection: Connection, person_id: str, now: datetime) -> None:
    """Comes before changes of sessions: all who lock both begin with people, or would deadlock."""
    change = update(people).where(people.c.id == person_id)
    connection.execute(change.values(visited_at=now))


def _from_row(row: Row[Any]) -> Session:
    return Session(**{column.name: row._mapping[column] for column in sessions.columns})
