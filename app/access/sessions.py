"""Signing in: sessions, however they begin, and passwords, with how often they may fail.

Strangers must not be able to lock the owner out. Failures are therefore counted by account and
network: after a few, that network has to wait for that account. Failures of an account from all
networks, and of a network with all accounts, refuse no one; they put the next attempts into a slow
queue, where all of a process make two a second. The owner sees the failures on the account page,
and gets mail about many.

A browser in which the person has signed in before has a cookie that says so: it is counted apart,
and goes before others (OWASP, "Slow down online guessing attacks with device cookies").
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from math import inf
from types import MappingProxyType
from typing import Any

from itsdangerous import BadData
from sqlalchemy import Connection, Row, delete, select, update

from app.access import audit
from app.access.attempts import AttemptLimits, Backoff, Failures, PasswordChecks
from app.access.audit import AuditAction
from app.access.keys import digest_of
from app.access.passwords import Passwords
from app.access.people import (
    MAX_EMAIL_CHARACTERS,
    Person,
    find_by_email,
    find_person,
    replace_hash,
    roles_of,
)
from app.access.recent import RECENT_SECONDS, Recent
from app.access.signing import Signing
from app.core import errors
from app.core.access import Caller, CallerKind, Role
from app.core.addresses import is_loopback, network_of, site_of
from app.db.context import Context, RequestContext
from app.db.sql import insert_row
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

PROVIDER_NAME = "single sign-on"
"""What pages call the OpenID provider."""

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
        is_over = (sessions.c.expires_at <= now) | (sessions.c.digest == digest_of(replaces))
        with ctx.database.write() as connection:
            _require_unchanged(connection, person, needs_password=method not in WITHOUT_PASSWORD)
            _note_visit(connection, person.id, now)
            connection.execute(delete(sessions).where(is_over))
            insert_row(connection, sessions, session)
        self._recent.forget()
        subject = f"person:{person.id}"
        audit.note(ctx, AuditAction.SESSION_BEGAN, subject, caller=person.caller, method=method)
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
        audit.note(ctx, AuditAction.SESSION_ENDED, ctx.caller.actor, count=count)

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
            with suppress(errors.UploadError):  # People can still delete something on a full disk.
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
        raise errors.WrongCredentials("The account has changed in the meantime. Sign in again.")
    if now.is_blocked:
        raise errors.NotAllowed(BLOCKED)


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
        (passkeys.c.person_id, settings.has_passkeys, "your passkey"),
        (second_factors.c.person_id, True, "a one-time code"),
        (provider_accounts.c.person_id, settings.oidc_issuer, PROVIDER_NAME),
    )
    with ctx.database.read() as connection:
        for column, is_offered, way in ways:
            query = select(column).where(column == person.id).limit(1)
            if is_offered and connection.execute(query).first() is not None:
                raise errors.InvalidField(f"Sign out, and sign in with {way}.", field="password")


# ---- passwords -----------------------------------------------------------------------------------

OF_ACCOUNT = Backoff(free=5)
"""From one network: an IPv4 address, or an IPv6 /64. Not from an IPv4 /24: its other addresses
belong to strangers, who could lock the owner out; an address costs more than its guesses."""

OF_ACCOUNT_FROM_SITE = Backoff(free=100)
"""From an IPv6 /48, whose owner has 65,536 networks."""

OF_DEVICE = Backoff(free=10)

SLOW_FROM_NETWORK = 30
"""Failures with all accounts. An office or a school shares one address."""

SLOW_OF_ACCOUNT = 20
"""Failures from all networks, of about a day."""

WARNED_AT = SLOW_OF_ACCOUNT
"""Failures of an account from all networks, from which its owner gets mail."""

OF_WARNINGS = Backoff(free=1, first=timedelta(days=1), most=timedelta(days=1))
"""One a day, while failures go on."""

SHOWN_FROM = 5
"""Failures from which the account page mentions them: one's own typing errors are fewer."""

ALL_NOTED = 100
"""The audit log records each of this many failures of a network or account, then those at powers
of 2."""

DEVICE_SECONDS = 400 * 24 * 3600

_MAX_COUNTED_CHARACTERS = 240
"""Of an address together with a network: the records take 300 for both."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """Checks e-mail addresses with passwords.

    `warn` tells the owner of an account that its password is being guessed; it must not wait.
    """

    ctx: Context
    checks: PasswordChecks
    passwords: Passwords
    _: KW_ONLY
    signing: Signing
    warn: Callable[[Person, int], object]

    def with_password(
        self, ctx: RequestContext, email: str, password: str, *, device: str
    ) -> Person:
        """Whose address and password these are; `device` is the cookie of `remember`.

        They may have changed since they were read: `Sessions.begin` compares the hash once more.
        A person with one-time codes is not signed in by that alone: see `SecondFactors`. Raises
        `WrongCredentials`, `TooManyAttempts`, `NotAllowed`, `ServerBusy`.
        """
        try:
            return self._with_password(email, password, address=ctx.address, device=device)
        except errors.WrongCredentials as error:
            # Otherwise a stranger could fill the audit log.
            if error.failures <= ALL_NOTED or error.failures & (error.failures - 1) == 0:
                failures = error.failures
                audit.note(ctx, AuditAction.SESSION_REFUSED, email=email, failures=failures)
            raise

    def confirm(self, person: Person, password: str) -> None:
        """Raise `InvalidField` unless it is their password; without one they must sign in again."""
        if person.password_hash is None or not self.ctx.settings.has_passwords:
            words = "Sign out and in again first, to show that it is you."
            raise errors.InvalidField(words, field="password")
        self.require_password(person, password)

    def require_password(self, person: Person, password: str) -> None:
        """Raise `InvalidField` unless a person who is signed in knows the password too."""
        limits = _limits_of_known(person, f"confirm:{person.id}")
        failures = self.checks.failures_after(person.password_hash, password, limits)
        now = find_person(self.ctx, person.id)  # The check may have taken long.
        if failures or now is None or now.password_hash != person.password_hash:
            raise errors.InvalidField("This is not your password.", field="old_password")

    def remember(self, person: Person) -> str:
        """The value of a cookie by which a browser shows that the person has used it before."""
        return self.signing.signer("device").dumps([person.id, secrets.token_urlsafe(9)])

    def failures_of(self, person: Person) -> Failures | None:
        """Failures of new browsers that the person should know of: those of about a day."""
        failures = self.checks.failures_of(f"account:{person.email}")
        return failures if failures is not None and failures.count >= SHOWN_FROM else None

    def known_device(self, person: Person, device: str) -> str | None:
        """The number of a browser that has a cookie of `remember` for this person."""
        if not device:
            return None
        try:
            person_id, number = self.signing.signer("device").loads(device, DEVICE_SECONDS)
        except (BadData, ValueError, TypeError):
            return None
        return str(number) if person_id == person.id else None

    def _with_password(self, email: str, password: str, *, address: str, device: str) -> Person:
        if not self.ctx.settings.has_passwords:
            raise errors.NotAllowed("Signing in with a password is turned off.")
        email = email.strip().lower()[:MAX_EMAIL_CHARACTERS].encode("utf-8", "replace").decode()
        person = find_by_email(self.ctx, email)
        known = None if person is None else self.known_device(person, device)
        limits = _limits(email, address)
        if person is not None and known is not None:
            limits = _limits_of_known(person, f"device:{known}")
        stored = person.password_hash if person else None
        failures = self.checks.failures_after(stored, password, limits)
        if failures or person is None:
            self._warn_at(failures.get(f"account:{email}"), email, person)
            raise errors.WrongCredentials(
                "Check both, and whether the caps lock is on.",
                failures=max((each.count for each in failures.values()), default=1),
            )
        if person.is_blocked:
            raise errors.NotAllowed(BLOCKED)
        refreshed = self._refreshed(person, password)
        if refreshed is None:  # By another request, or it is another password by now.
            return self._with_password(email, password, address=address, device=device)
        return refreshed

    def _warn_at(self, failures: Failures | None, email: str, person: Person | None) -> None:
        if failures is None or failures.count < WARNED_AT:
            return
        with suppress(errors.TooManyAttempts):  # It was said today.
            # For every address: the time that it takes would tell which ones have accounts.
            self.checks.count({f"warned:{email}": OF_WARNINGS})
            if person is not None:
                self.warn(person, failures.count)

    def _refreshed(self, person: Person, password: str) -> Person | None:
        """Hash the password again if the parameters have changed: only now it is known.

        Returns the person with the stored hash; None if another one was stored first.
        """
        if not (person.password_hash and self.passwords.is_outdated(person.password_hash)):
            return person
        try:
            new = self.passwords.hash(password)
        except errors.ServerBusy:  # Next time.
            return person
        with self.ctx.database.write() as connection:
            is_ours = replace_hash(connection, person, new)
        return replace(person, password_hash=new) if is_ours else None


def _limits_of_known(person: Person, subject: str) -> AttemptLimits:
    """Of a browser in which the person has signed in before."""
    client = f"person:{person.id}"
    return AttemptLimits(refusing={subject: OF_DEVICE}, client=client, is_known_device=True)


def _limits(email: str, address: str) -> AttemptLimits:
    """Of a new browser. A network of this machine is not slowed.

    Behind a proxy that names no clients, all clients would count as one.
    """
    network, site = network_of(address), site_of(address)
    account = f"account:{email}"
    account_here = f"account:{email[:_MAX_COUNTED_CHARACTERS]}"
    refusing = {f"{account_here}:{network}": OF_ACCOUNT}
    if site:
        refusing[f"{account_here}:{site}"] = OF_ACCOUNT_FROM_SITE
    if is_loopback(address):  # Counted all the same: the audit log notes fewer of many.
        slowing = {account: SLOW_OF_ACCOUNT, f"address:{network}": inf}
        return AttemptLimits(refusing=refusing, slowing=slowing)
    networks = [f"address:{name}" for name in (network, site) if name]
    return AttemptLimits(
        refusing=refusing,
        slowing={account: SLOW_OF_ACCOUNT, **dict.fromkeys(networks, SLOW_FROM_NETWORK)},
        networks=tuple(networks),
        client=site or network,
    )
