"""Sessions: begun by signing in, renewed by use, ended by their owner."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from app.access import audit
from app.access.audit import AuditAction
from app.access.keys import digest_of
from app.access.people import Person, roles_of
from app.access.recent import RECENT_SECONDS, Recent
from app.core.access import Caller, CallerKind, Role
from app.core.errors import InvalidField, NotAllowed, UploadError, WrongCredentials
from app.db.context import Context, RequestContext
from app.db.tables import passkeys, people, provider_accounts, second_factors, sessions
from app.settings import Settings

BLOCKED = "Your account is blocked. An administrator can let you in again."

# ---- rows ----------------------------------------------------------------------------------------


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

    @classmethod
    def of(cls, row: Row[Any]) -> Session:
        """The session in a row that has all columns of `sessions`."""
        return cls(**{column.name: row._mapping[column] for column in sessions.columns})


# ---- rules ---------------------------------------------------------------------------------------

PASSWORD, PASSWORD_AND_CODE = "password", "password+code"
PROVIDER = "provider"
"""Ways to sign in, as sessions and the audit log name them; the last is the OpenID provider."""

MAX_AGE_OF_PROVIDER = timedelta(days=1)
"""A session that began at the provider ends after a day: the provider does not tell this server
whom it has blocked."""

WITHOUT_PASSWORD = frozenset({"passkey", PROVIDER})

STRONG_METHODS = WITHOUT_PASSWORD | {PASSWORD_AND_CODE}
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

    @classmethod
    def of(cls, settings: Settings) -> SessionRules:
        """The rules that the operator has set."""
        return cls(
            idle=timedelta(seconds=settings.session_idle_seconds),
            longest=timedelta(seconds=settings.session_seconds),
            second_factor=settings.second_factor,
        )

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

# ---- use cases -----------------------------------------------------------------------------------


class Sessions:
    """What people do with their sessions, and for whom a session's cookie stands.

    It remembers the latter for a moment.
    """

    def __init__(
        self,
        ctx: Context,
        *,
        rules: SessionRules | None = None,
        recent_seconds: float = RECENT_SECONDS,
    ) -> None:
        self._ctx = ctx
        self._rules = rules or SessionRules.of(ctx.settings)
        self._recent = Recent(self._look_up, seconds=recent_seconds)

    def begin(
        self, ctx: RequestContext, person: Person, method: str, *, agent: str, replaces: str = ""
    ) -> str:
        """The cookie's value of a new session; that of the cookie it `replaces` has ended.

        `method` says how the person signed in: `PASSWORD`, `PASSWORD_AND_CODE`, "passkey",
        `PROVIDER` or "link"; `agent` is what the browser calls itself. Raises `WrongCredentials` if
        the account is gone, or if its password is by now another than that of `person`, unless they
        signed in without one; `NotAllowed` for a blocked person.
        """
        cookie, now = secrets.token_urlsafe(TOKEN_BYTES), ctx.clock()
        session = Session(
            digest=digest_of(cookie),
            id=ctx.new_id(),
            person_id=person.id,
            method=method,
            created_at=now,
            active_at=now,
            expires_at=self._rules.expiry(method, now, began=now),
            address=ctx.address[:MAX_ADDRESS_CHARACTERS],
            agent=agent[:MAX_AGENT_CHARACTERS],
        )
        values = {column.name: getattr(session, column.name) for column in sessions.columns}
        is_over = (sessions.c.expires_at <= now) | (sessions.c.digest == digest_of(replaces))
        with ctx.database.write() as connection:
            _require_unchanged(connection, person, needs_password=method not in WITHOUT_PASSWORD)
            _note_visit(connection, person.id, now)
            connection.execute(delete(sessions).where(is_over))
            connection.execute(insert(sessions).values(values))
        self._recent.forget()
        subject, about = f"person:{person.id}", {"method": method}
        audit.note(ctx, AuditAction.SESSION_BEGAN, subject, caller=person.caller, details=about)
        return cookie

    def caller(self, cookie: str, *, fresh: bool = False) -> Caller | None:
        """Who sends a request with that cookie; None if the session has ended.

        `fresh` bypasses this process's cache.
        """
        return self._recent.get(digest_of(cookie), fresh=fresh) if cookie else None

    def of_person(self, person_id: str) -> list[Session]:
        """The sessions of a person, the last used first."""
        now = self._ctx.clock()
        query = (
            select(sessions)
            .where(sessions.c.person_id == person_id, sessions.c.expires_at > now)
            .order_by(sessions.c.active_at.desc(), sessions.c.id)
        )
        with self._ctx.database.read() as connection:
            found = [Session.of(row) for row in connection.execute(query)]
        return [session for session in found if not self._rules.is_over(session, now)]

    def has_just_begun(self, ctx: RequestContext) -> bool:
        """Whether the caller signed in to this session within `JUST_BEGUN`.

        Otherwise an attacker at an unattended browser could take over the account.
        """
        now = ctx.clock()
        return any(
            session.id == ctx.caller.session and now - session.created_at < JUST_BEGUN
            for session in self.of_person(ctx.caller.id)
        )

    def end(self, ctx: RequestContext, cookie: str) -> None:
        """Sign out the browser that has this cookie."""
        with ctx.database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.digest == digest_of(cookie)))
        self._recent.forget()
        audit.note(ctx, AuditAction.SESSION_ENDED, ctx.caller.actor)

    def end_one(self, ctx: RequestContext, session_id: str) -> None:
        """End one of the caller's own sessions."""
        is_it = (sessions.c.person_id == ctx.caller.id) & (sessions.c.id == session_id)
        with ctx.database.write() as connection:
            connection.execute(delete(sessions).where(is_it))
        self._recent.forget()
        audit.note(ctx, AuditAction.SESSION_ENDED, ctx.caller.actor)

    def end_others(self, ctx: RequestContext) -> None:
        """End all sessions of the caller but this one."""
        count = self.end_all(ctx.caller.id, but=ctx.caller.session)
        audit.note(ctx, AuditAction.SESSION_ENDED, ctx.caller.actor, details={"count": count})

    def end_all(self, person_id: str, *, but: str = "") -> int:
        """End all sessions of a person, except that with the id `but`; how many."""
        is_theirs = (sessions.c.person_id == person_id) & (sessions.c.id != but)
        with self._ctx.database.write() as connection:
            ended = connection.execute(delete(sessions).where(is_theirs)).rowcount
        self._recent.forget()
        return ended

    def strengthen(self, ctx: RequestContext, method: str) -> None:
        """Note that the caller has shown more than a password in this session: see `begin`.

        A session that was strong before stays what it was: one of the provider ends after a day.
        """
        is_weak = (sessions.c.id == ctx.caller.session) & sessions.c.method.not_in(STRONG_METHODS)
        with ctx.database.write() as connection:
            connection.execute(update(sessions).where(is_weak).values(method=method))
        self._recent.forget()

    def choose_project(self, ctx: RequestContext, project_id: str) -> None:
        """Let new uploads of this session go to that project, and lists show it."""
        change = update(sessions).where(sessions.c.id == ctx.caller.session)
        with ctx.database.write() as connection:
            connection.execute(change.values(project_id=project_id))
        self._recent.forget()

    def forget(self) -> None:
        """Look all callers up again: a person was blocked, or a role has changed."""
        self._recent.forget()

    def _look_up(self, digest: str) -> Caller | None:
        query = (
            select(sessions, people)
            .join(people, people.c.id == sessions.c.person_id)
            .where(sessions.c.digest == digest)
        )
        with self._ctx.database.read() as connection:
            row = connection.execute(query).first()
            if row is None:
                return None
            session, person = Session.of(row), Person.of(row)
            roles = roles_of(connection, person.id)
        now = self._ctx.clock()
        if person.is_blocked or self._rules.is_over(session, now):
            return None
        if now - session.active_at > self._rules.use_noted_every:
            with suppress(UploadError):  # People can still delete something on a full disk.
                self._note_use(session, now)
        project = session.project_id
        if project is None or project not in roles:  # They have left it, or have chosen none.
            project = next(iter(roles), "")
        is_weak = session.method not in STRONG_METHODS
        return Caller(
            kind=CallerKind.PERSON,
            id=person.id,
            name=person.name,
            project=project,
            roles=MappingProxyType(dict(roles)),
            is_admin=person.is_admin,
            session=session.id,
            needs_second_factor=is_weak and self._rules.demands_second_factor(person, roles),
        )

    def _note_use(self, session: Session, now: datetime) -> None:
        """Note that the session was used, unless another process did so a moment ago."""
        noted_before = now - self._rules.use_noted_every
        is_due = (sessions.c.digest == session.digest) & (sessions.c.active_at < noted_before)
        expires_at = self._rules.expiry(session.method, now, began=session.created_at)
        change = update(sessions).where(is_due).values(active_at=now, expires_at=expires_at)
        with self._ctx.database.write() as connection:
            if connection.execute(select(sessions.c.id).where(is_due)).first() is not None:
                _note_visit(connection, session.person_id, now)
                connection.execute(change)


def _require_unchanged(connection: Connection, person: Person, *, needs_password: bool) -> None:
    """Raise unless the person may still come in; this holds until the transaction ends.

    With a password, only as long as it is still theirs: checking it may have taken long.
    """
    query = select(people.c.is_blocked, people.c.password_hash).where(people.c.id == person.id)
    now = connection.execute(query.with_for_update(key_share=True)).first()
    if now is None or (needs_password and person.password_hash not in {None, now.password_hash}):
        raise WrongCredentials("The account has changed in the meantime. Sign in again.")
    if now.is_blocked:
        raise NotAllowed(BLOCKED)


def _note_visit(connection: Connection, person_id: str, now: datetime) -> None:
    """Comes before changes of sessions: all who lock both begin with people, or would deadlock."""
    change = update(people).where(people.c.id == person_id)
    connection.execute(change.values(visited_at=now))


def require_known_way(ctx: RequestContext, person: Person) -> None:
    """Raise `InvalidField` if the person has a stronger way to sign in, and has not used it.

    Otherwise an attacker with only the password could add the required second factor.
    """
    if not ctx.caller.needs_second_factor:
        return
    settings = ctx.settings
    ways = (
        (passkeys.c.person_id, settings.passkeys, "your passkey"),
        (second_factors.c.person_id, True, "a one-time code"),
        (provider_accounts.c.person_id, settings.oidc_issuer, settings.oidc_name),
    )
    with ctx.database.read() as connection:
        for column, is_offered, way in ways:
            query = select(column).where(column == person.id).limit(1)
            if is_offered and connection.execute(query).first() is not None:
                raise InvalidField(f"Sign out, and sign in with {way}.", field="password")
