"""Sessions: begun by signing in, renewed by use, ended by their owner."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from app.access.keys import digest_of
from app.access.people import Person, roles_of
from app.access.recent import RECENT_SECONDS, Recent
from app.core.access import Caller, CallerKind, Role
from app.core.errors import NotAllowed, UploadError, WrongCredentials
from app.db.engine import Database
from app.db.tables import people, sessions

# ---- rows ----------------------------------------------------------------------------------------

# The records of sessions: who is signed in, from where.


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
            person = Person.of(row)
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
    """Raise unless the person may still come in; this holds until the transaction ends."""
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


# ---- use cases -----------------------------------------------------------------------------------


PROVIDER = "provider"
"""Signed in at the OpenID provider."""

MAX_AGE_OF_PROVIDER = timedelta(days=1)
"""A session that began at the provider ends after a day: the provider does not tell this server
whom it has blocked."""

WITHOUT_PASSWORD = frozenset({"passkey", PROVIDER})

STRONG_METHODS = WITHOUT_PASSWORD | {"password+code"}
"""Ways to sign in that need more than a password. A provider asks for what it wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """How long sessions last, and who needs more than a password.

    A session ends after `idle` without use, and after `longest` in any case. `second_factor` is
    `optional`, or says who needs one: `administrators`, `managers` or `everyone`.
    """

    idle: timedelta = timedelta(days=30)
    longest: timedelta = timedelta(days=90)
    second_factor: str = "optional"

    @property
    def use_noted_every(self) -> timedelta:
        """How often at most use is noted: each time is a write, and a session in use must go on."""
        return min(timedelta(minutes=1), self.idle / 4)

    def expiry(self, method: str, now: datetime, *, began: datetime) -> datetime:
        """When a session ends that is not used after now."""
        longest = min(self.longest, MAX_AGE_OF_PROVIDER) if method == PROVIDER else self.longest
        return min(now + self.idle, began + longest)

    def is_over(self, session: Session, now: datetime) -> bool:
        """Whether a session has ended, also if it began when sessions lasted longer."""
        expiry = self.expiry(session.method, session.active_at, began=session.created_at)
        return now >= min(session.expires_at, expiry)

    def demands_second_factor(self, person: Person, roles: Mapping[str, Role]) -> bool:
        """Whether a password alone is not enough for this person."""
        if self.second_factor == "managers":
            return person.is_admin or Role.MANAGER in roles.values()
        if self.second_factor == "administrators":
            return person.is_admin
        return self.second_factor == "everyone"


JUST_BEGUN = timedelta(minutes=10)
"""For so long after signing in, the password is not asked for again."""

TOKEN_BYTES = 32

MAX_AGENT_CHARACTERS = 400
MAX_ADDRESS_CHARACTERS = 64


class Sessions:
    """What people do with their sessions, and for whom a session's cookie stands."""

    def __init__(
        self,
        records: SessionRecords,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        rules: SessionRules | None = None,
        recent_seconds: float = RECENT_SECONDS,
    ) -> None:
        self._records = records
        self._rules = rules or SessionRules()
        self._clock = clock
        self._new_id = new_id
        self._recent = Recent(self._look_up, seconds=recent_seconds)

    def begin(
        self, person: Person, method: str, *, address: str, agent: str, replaces: str = ""
    ) -> str:
        """The cookie's value of a new session; that of the cookie it `replaces` has ended.

        `method` says how the person signed in: "password", "password+code", "passkey", `PROVIDER`
        or "link"; `agent` is what the browser calls itself. Raises `WrongCredentials` if the
        account is gone, or if its password is by now another than that of `person`, unless they
        signed in without one; `NotAllowed` for who is blocked.
        """
        cookie, now = secrets.token_urlsafe(TOKEN_BYTES), self._clock()
        session = Session(
            digest=digest_of(cookie),
            id=self._new_id(),
            person_id=person.id,
            method=method,
            created_at=now,
            active_at=now,
            expires_at=self._rules.expiry(method, now, began=now),
            address=address[:MAX_ADDRESS_CHARACTERS],
            agent=agent[:MAX_AGENT_CHARACTERS],
        )
        self._records.add(
            session,
            instead_of=digest_of(replaces) if replaces else None,
            password_hash=None if method in WITHOUT_PASSWORD else person.password_hash,
        )
        self._recent.forget()
        return cookie

    def caller(self, cookie: str, *, fresh: bool = False) -> Caller | None:
        """Who sends a request with that cookie; None if the session has ended.

        `fresh` bypasses this process's cache.
        """
        return self._recent.get(digest_of(cookie), fresh=fresh) if cookie else None

    def of_person(self, person_id: str) -> list[Session]:
        """The sessions of a person, the last used first."""
        now = self._clock()
        found = self._records.of_person(person_id, now)
        return [session for session in found if not self._rules.is_over(session, now)]

    def has_just_begun(self, person_id: str, session_id: str) -> bool:
        """Whether the person signed in to this session within `JUST_BEGUN`."""
        now = self._clock()
        return any(
            session.id == session_id and now - session.created_at < JUST_BEGUN
            for session in self.of_person(person_id)
        )

    def end(self, cookie: str) -> None:
        """Sign out the browser that has this cookie."""
        self._records.end(digest_of(cookie))
        self._recent.forget()

    def end_one(self, person_id: str, session_id: str) -> bool:
        """End one session of a person; whether there was such a one."""
        ended = self._records.end_of_person(person_id, only=session_id)
        self._recent.forget()
        return ended == 1

    def end_others(self, person_id: str, *, but: str) -> int:
        """End all sessions of a person but the one with that id; how many."""
        ended = self._records.end_of_person(person_id, but=but)
        self._recent.forget()
        return ended

    def strengthen(self, session_id: str, method: str) -> None:
        """Note that the person has shown more than a password in this session: see `begin`.

        A session that was strong before stays what it was: one of the provider ends after a day.
        """
        self._records.set_method(session_id, method, unless=STRONG_METHODS)
        self._recent.forget()

    def choose_project(self, session_id: str, project_id: str) -> None:
        """Let new uploads of this session go to that project, and lists show it."""
        self._records.choose_project(session_id, project_id)
        self._recent.forget()

    def forget(self) -> None:
        """Look everybody up again: a person was blocked, or a role has changed."""
        self._recent.forget()

    def _look_up(self, digest: str) -> Caller | None:
        found, now = self._records.find(digest), self._clock()
        if found is None:
            return None
        session, person, roles = found
        if person.is_blocked or self._rules.is_over(session, now):
            return None
        every = self._rules.use_noted_every
        if now - session.active_at > every:
            with suppress(UploadError):  # People can still delete something on a full disk.
                expires_at = self._rules.expiry(session.method, now, began=session.created_at)
                self._records.note_use(digest, now, every=every, expires_at=expires_at)
        caller = _caller(session, person, roles)
        is_weak = session.method not in STRONG_METHODS
        if is_weak and self._rules.demands_second_factor(person, roles):
            return replace(caller, needs_second_factor=True)
        return caller


def _caller(session: Session, person: Person, roles: Mapping[str, Role]) -> Caller:
    return Caller(
        kind=CallerKind.PERSON,
        id=person.id,
        name=person.name,
        project=_project(session, roles),
        roles=MappingProxyType(dict(roles)),
        is_admin=person.is_admin,
        session=session.id,
    )


def _project(session: Session, roles: Mapping[str, Role]) -> str:
    """That last chosen, unless the person has left it; else the first one joined."""
    if session.project_id in roles:
        return session.project_id or ""
    return next(iter(roles), "")
