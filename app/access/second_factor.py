"""One-time codes (TOTP, RFC 6238) beside passwords, and recovery codes for a lost device.

A passkey is two factors by itself, and an OpenID provider asks for its own: neither needs a code.
Every code works once: one read over a shoulder is worthless. Secrets are stored as they are,
because the server must compute codes from them; recovery codes as digests.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from hmac import compare_digest

import pyotp
from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from app.access import audit
from app.access.attempts import Backoff, PasswordChecks
from app.access.audit import AuditAction
from app.access.keys import digest_of
from app.access.people import Person, admitted, audit_person, find_person, remove_second_factor
from app.access.sessions import PASSWORD_AND_CODE, Sessions
from app.access.signing import SingleUse
from app.core.errors import InvalidField, SignInRefused
from app.db.context import Context, RequestContext
from app.db.sql import lock_row
from app.db.tables import people, recovery_codes, second_factors

ISSUER = "Sluice"
"""What an authenticator app calls the account, together with the e-mail address."""

STEP_SECONDS = 30
DRIFT_STEPS = 1
"""Codes of the step before and after are good too: clocks differ (RFC 6238, section 5.2)."""

RECOVERY_CODES = 10
RECOVERY_CODE_CHARACTERS = 10
RECOVERY_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""No characters that look alike. Ten of them are 49 random bits."""

OF_CODES = Backoff(free=5, most=timedelta(hours=1))
"""Only who knows the password can enter codes. Three of a million are good at a time: with an hour
between guesses, one is right in 38 years on average. All known browsers of a person share a count:
there can be any number of them."""

_PURPOSE, _SET_UP = "second factor", "second factor set-up"


@dataclass(frozen=True, slots=True)
class SetUp:
    """What an authenticator app is given: the secret in base32, the same as a URI, and a token.

    The token is to be returned with a first code.
    """

    secret: str = field(repr=False)
    uri: str = field(repr=False)
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SecondFactors:
    """The one-time codes of people.

    A token works only in the browser that it was given to: before the sign-in a `mark` tells
    browsers apart, and after it their sessions.
    """

    ctx: Context
    tokens: SingleUse
    checks: PasswordChecks
    sessions: Sessions

    def has(self, person_id: str) -> bool:
        """Whether the person's password needs a code beside it."""
        query = select(second_factors.c.person_id).where(second_factors.c.person_id == person_id)
        with self.ctx.database.read() as connection:
            return connection.execute(query).first() is not None

    def people(self) -> set[str]:
        """The ids of all people who have one."""
        with self.ctx.database.read() as connection:
            return set(connection.execute(select(second_factors.c.person_id)).scalars())

    def recovery_codes_left(self, person_id: str) -> int:
        """How many recovery codes were not used yet."""
        query = select(recovery_codes.c.digest).where(recovery_codes.c.person_id == person_id)
        with self.ctx.database.read() as connection:
            return len(connection.execute(query).all())

    def begin(self, ctx: RequestContext, person: Person) -> SetUp:
        """A new secret for the person's app; nothing is stored yet."""
        secret = pyotp.random_base32()
        words = {"person": person.id, "browser": ctx.caller.session, "secret": secret}
        return _set_up(person, secret, self.tokens.issue(_SET_UP, words))

    def resume(self, ctx: RequestContext, person: Person, token: str) -> SetUp:
        """The set-up that a token is of; raises `InvalidField` if it took too long."""
        try:
            words = self.tokens.read(_SET_UP, token)
        except SignInRefused as error:
            raise InvalidField(str(error), field="code") from None
        if (words["person"], words["browser"]) != (person.id, ctx.caller.session):
            raise InvalidField("This was begun in another browser. Begin again.", field="code")
        return _set_up(person, words["secret"], token)

    def add(self, ctx: RequestContext, person: Person, set_up: SetUp, code: str) -> list[str]:
        """Store the secret; returns the recovery codes, which are shown this one time.

        Ends the person's other sessions. Raises `InvalidField` unless the code is one of the
        secret's, and `SignInRefused` the second time: codes that were used with this secret would
        work once more.
        """
        step = self._step_of(set_up.secret, _plain(code))
        if step is None:
            raise InvalidField("This is not the code that the app shows now.", field="code")
        self.tokens.spend(self.tokens.read(_SET_UP, set_up.token))
        values = {
            "person_id": person.id,
            "secret": set_up.secret,
            "last_step": step,
            "created_at": self.ctx.clock(),
        }
        with self.ctx.database.write() as connection:
            _lock(connection, person.id)
            connection.execute(delete(second_factors).where(_is_of(person.id)))
            connection.execute(insert(second_factors).values(values))
            codes = _renew_recovery_codes(connection, person.id)
        self.sessions.end_all(person.id, but=ctx.caller.session)
        self.sessions.strengthen(ctx, PASSWORD_AND_CODE)
        audit_person(ctx, AuditAction.FACTOR_ADDED, person)
        return codes

    def renew_recovery_codes(self, ctx: RequestContext, person: Person) -> list[str]:
        """New recovery codes; the old ones work no longer."""
        with ctx.database.write() as connection:
            _lock(connection, person.id)
            codes = _renew_recovery_codes(connection, person.id)
        audit_person(ctx, AuditAction.RECOVERY_CODES_RENEWED, person)
        return codes

    def remove(self, ctx: RequestContext, person: Person) -> None:
        """Let the password alone be enough again."""
        with ctx.database.write() as connection:
            _lock(connection, person.id)
            remove_second_factor(connection, person.id)
        audit_person(ctx, AuditAction.FACTOR_REMOVED, person)

    def ask(self, person: Person, mark: str) -> str:
        """A token that stands for the right password, to be returned with a code."""
        words = {"person": person.id, "browser": mark, "password": _password_id(person)}
        return self.tokens.issue(_PURPOSE, words)

    def person_of(self, token: str, mark: str) -> Person:
        """Whose right password a token stands for; raises `SignInRefused` if it does no longer."""
        words = self.tokens.read(_PURPOSE, token)
        person = find_person(self.ctx, words["person"])
        if not mark or words["browser"] != mark:
            raise SignInRefused("This was begun in another browser. Begin again.")
        person = admitted(person)
        if words["password"] != _password_id(person):
            raise SignInRefused("The password was changed. Begin again.")
        return person

    def spend(self, token: str) -> None:
        """Let the token of a sign-in work no more; raises `SignInRefused` the second time."""
        self.tokens.spend(self.tokens.read(_PURPOSE, token))

    def check(
        self, ctx: RequestContext, person: Person, code: str, *, is_known_device: bool = False
    ) -> None:
        """Use up a one-time code or a recovery code.

        Raises `InvalidField` for a wrong one, `TooManyAttempts` after several. Those with another
        password, or of browsers in which the person has signed in before, are counted apart: who
        has found out a password must not lock its owner out.
        """
        text, counted = _plain(code), f"code:{person.id}:{_password_id(person)}"
        if is_known_device:
            counted += ":known"
        self.checks.count({counted: OF_CODES})
        is_right = self._spend_code(person.id, text)
        if not is_right:
            is_it = recovery_codes.c.digest == _digest(person.id, text)
            with ctx.database.write() as connection:
                is_right = connection.execute(delete(recovery_codes).where(is_it)).rowcount == 1
        if not is_right:
            # Waiting times limit the number of these entries: see `OF_CODES`.
            action, subject = AuditAction.SESSION_REFUSED, f"person:{person.id}"
            audit.note(ctx, action, subject, email=person.email, method="code")
            raise InvalidField("The code is wrong, or was used before.", field="code")
        self.checks.forget(counted)

    def _spend_code(self, person_id: str, code: str) -> bool:
        query = select(second_factors.c.secret).where(_is_of(person_id))
        with self.ctx.database.read() as connection:
            secret = connection.execute(query).scalar_one_or_none()
        step = None if secret is None else self._step_of(secret, code)
        if step is None:
            return False
        is_new = second_factors.c.last_step < step
        change = update(second_factors).where(_is_of(person_id), is_new).values(last_step=step)
        with self.ctx.database.write() as connection:
            return connection.execute(change).rowcount == 1

    def _step_of(self, secret: str, code: str) -> int | None:
        """The time step whose code this is, of those that are good now."""
        totp = pyotp.TOTP(secret, interval=STEP_SECONDS)
        now = int(self.ctx.clock().timestamp()) // STEP_SECONDS
        for step in range(now - DRIFT_STEPS, now + DRIFT_STEPS + 1):
            if compare_digest(totp.generate_otp(step), code):
                return step
        return None


def _set_up(person: Person, secret: str, token: str) -> SetUp:
    uri = pyotp.TOTP(secret).provisioning_uri(name=person.email, issuer_name=ISSUER)
    return SetUp(secret, uri, token)


def _lock(connection: Connection, person_id: str) -> None:
    """Let changes of a person's codes wait for each other; raises `SignInRefused`."""
    if not lock_row(connection, people.c.id, person_id):
        raise SignInRefused("Your account was removed.")


def _renew_recovery_codes(connection: Connection, person_id: str) -> list[str]:
    texts = [
        "".join(secrets.choice(RECOVERY_ALPHABET) for _ in range(RECOVERY_CODE_CHARACTERS))
        for _ in range(RECOVERY_CODES)
    ]
    codes = [f"{text[:5]}-{text[5:]}" for text in texts]
    rows = [{"person_id": person_id, "digest": _digest(person_id, _plain(code))} for code in codes]
    connection.execute(delete(recovery_codes).where(recovery_codes.c.person_id == person_id))
    connection.execute(insert(recovery_codes), rows)
    return codes


def _password_id(person: Person) -> str:
    """Changes with the password; tells nothing about it, as its hash has a random salt."""
    return digest_of(person.password_hash or "")[:16]


def _plain(code: str) -> str:
    """The code however it was typed, in ASCII alone: `compare_digest` takes nothing else."""
    return re.sub(r"[\s-]", "", code).lower().encode("ascii", "replace").decode()


def _is_of(person_id: str) -> ColumnElement[bool]:
    return second_factors.c.person_id == person_id


def _digest(person_id: str, code: str) -> str:
    """Of a recovery code of that person, without the dash."""
    return digest_of(f"{person_id} {code}")
