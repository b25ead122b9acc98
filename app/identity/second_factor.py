"""One-time codes (TOTP, RFC 6238) beside passwords, and recovery codes for a lost device.

A passkey is two factors by itself, and an OpenID provider asks for its own: neither needs a code.
Every code works once, also for whoever reads it over a shoulder. Secrets are stored as they are,
because the server must compute codes from them; recovery codes as digests.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest

import pyotp
from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy import ColumnElement, delete, insert, select, update

from app.domain.errors import InvalidField, SignInRefused, TooManyAttempts
from app.identity.key_format import digest_of
from app.identity.password_checks import in_words
from app.identity.signing import Signing
from app.identity.single_use import SingleUse
from app.records.engine import Database
from app.records.identity.attempts import AttemptRecords, Patience
from app.records.identity.people import PeopleRecords, Person
from app.records.identity.tables import recovery_codes, second_factors

ISSUER = "Sluice"
"""What an authenticator app calls the account, together with the e-mail address."""

STEP_SECONDS = 30
DRIFT_STEPS = 1
"""Codes of the step before and after are good too: clocks differ (RFC 6238, section 5.2)."""

RECOVERY_CODES = 10
RECOVERY_CODE_CHARACTERS = 10
RECOVERY_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""No characters that look alike. Ten of them are 49 random bits."""

SET_UP_SECONDS = 15 * 60
"""How long setting up may take: the secret is stored once a first code was right."""

OF_CODES = Patience(free=5)
"""Only who knows the password can enter codes: with 15 minutes between guesses, one in 10,000 years
is right."""

_PURPOSE = "second factor"


@dataclass(frozen=True, slots=True)
class SetUp:
    """What an authenticator app is given: the secret in base32, the same as a URI, and a token.

    The token is to be returned with a first code.
    """

    secret: str
    uri: str
    token: str


class SecondFactors:
    """The one-time codes of people."""

    def __init__(
        self,
        database: Database,
        tokens: SingleUse,
        signing: Signing,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._signing = signing
        self._people = PeopleRecords(database)
        self._attempts = AttemptRecords(database)
        self._clock = clock

    def has(self, person_id: str) -> bool:
        """Whether the person's password needs a code beside it."""
        query = select(second_factors.c.person_id).where(second_factors.c.person_id == person_id)
        with self._database.read() as connection:
            return connection.execute(query).first() is not None

    def people(self) -> set[str]:
        """The ids of all people who have one."""
        with self._database.read() as connection:
            return set(connection.execute(select(second_factors.c.person_id)).scalars())

    def recovery_codes_left(self, person_id: str) -> int:
        """How many recovery codes were not used yet."""
        query = select(recovery_codes.c.digest).where(recovery_codes.c.person_id == person_id)
        with self._database.read() as connection:
            return len(connection.execute(query).all())

    def begin(self, person: Person) -> SetUp:
        """A new secret for the person's app; nothing is stored yet."""
        secret = pyotp.random_base32()
        uri = pyotp.TOTP(secret).provisioning_uri(name=person.email, issuer_name=ISSUER)
        return SetUp(secret, uri, self._signer.dumps([person.id, secret]))

    def resume(self, person: Person, token: str) -> SetUp:
        """The set-up that a token is of; raises `InvalidField` if it took too long."""
        try:
            person_id, secret = self._signer.loads(token, max_age=SET_UP_SECONDS)
        except (BadData, ValueError, TypeError):
            person_id, secret = "", ""
        if person_id != person.id:
            raise InvalidField("This took too long. Begin again.", field="code")
        uri = pyotp.TOTP(secret).provisioning_uri(name=person.email, issuer_name=ISSUER)
        return SetUp(secret, uri, token)

    def confirm(self, person: Person, set_up: SetUp, code: str) -> list[str]:
        """Store the secret; returns the recovery codes, which are shown this one time.

        Raises `InvalidField` unless the code is one of the secret's.
        """
        step = self._step_of(set_up.secret, code)
        if step is None:
            raise InvalidField("This is not the code that the app shows now.", field="code")
        values = {
            "person_id": person.id,
            "secret": set_up.secret,
            "last_step": step,
            "created_at": self._clock(),
        }
        with self._database.write() as connection:
            connection.execute(delete(second_factors).where(_is_of(person.id)))
            connection.execute(insert(second_factors).values(values))
        return self.renew_recovery_codes(person.id)

    def renew_recovery_codes(self, person_id: str) -> list[str]:
        """New recovery codes; the old ones work no longer."""
        codes = [_new_recovery_code() for _ in range(RECOVERY_CODES)]
        rows = [{"person_id": person_id, "digest": _digest(person_id, code)} for code in codes]
        with self._database.write() as connection:
            connection.execute(
                delete(recovery_codes).where(recovery_codes.c.person_id == person_id)
            )
            connection.execute(insert(recovery_codes), rows)
        return codes

    def remove(self, person_id: str) -> None:
        """Let the password alone be enough again."""
        with self._database.write() as connection:
            connection.execute(
                delete(recovery_codes).where(recovery_codes.c.person_id == person_id)
            )
            connection.execute(delete(second_factors).where(_is_of(person_id)))

    def ask(self, person: Person) -> str:
        """A token that stands for the right password, to be returned with a code."""
        return self._tokens.issue(_PURPOSE, {"person": person.id})

    def sign_in(self, token: str, code: str) -> Person:
        """Whose token and code these are; raises what `check` does, and `SignInRefused`."""
        words = self._tokens.read(_PURPOSE, token)
        self.check(words["person"], code)
        self._tokens.spend(words)
        person = self._people.find(words["person"])
        if person is None or person.is_blocked:
            raise SignInRefused("This account is blocked. An administrator can let you in again.")
        return person

    def check(self, person_id: str, code: str) -> None:
        """Use up a one-time code or a recovery code.

        Raises `InvalidField` for a wrong one, `TooManyAttempts` after several.
        """
        subject, now = f"code:{person_id}", self._clock()
        failures = self._attempts.failures([subject], now).get(subject)
        if failures is not None and (wait := OF_CODES.wait(failures, now)):
            seconds = int(wait.total_seconds()) + 1
            raise TooManyAttempts(f"Try again in {in_words(seconds)}.", wait_seconds=seconds)
        text = re.sub(r"[\s-]", "", code).lower()
        if not (self._spend_code(person_id, text) or self._spend_recovery_code(person_id, text)):
            self._attempts.failed([subject], now)
            raise InvalidField("The code is wrong, or was used before.", field="code")
        if failures is not None:
            self._attempts.forget([subject])

    def _spend_code(self, person_id: str, code: str) -> bool:
        query = select(second_factors.c.secret).where(_is_of(person_id))
        with self._database.read() as connection:
            secret = connection.execute(query).scalar_one_or_none()
        step = None if secret is None else self._step_of(secret, code)
        if step is None:
            return False
        is_new = second_factors.c.last_step < step
        change = update(second_factors).where(_is_of(person_id), is_new).values(last_step=step)
        with self._database.write() as connection:
            return connection.execute(change).rowcount == 1

    def _spend_recovery_code(self, person_id: str, code: str) -> bool:
        is_it = recovery_codes.c.digest == _digest(person_id, code)
        with self._database.write() as connection:
            return connection.execute(delete(recovery_codes).where(is_it)).rowcount == 1

    def _step_of(self, secret: str, code: str) -> int | None:
        """The time step whose code this is, of those that are good now."""
        totp = pyotp.TOTP(secret, interval=STEP_SECONDS)
        now = int(self._clock().timestamp()) // STEP_SECONDS
        for step in range(now - DRIFT_STEPS, now + DRIFT_STEPS + 1):
            expected = totp.generate_otp(step)
            with suppress(UnicodeEncodeError):
                if compare_digest(expected.encode(), code.strip().encode("ascii")):
                    return step
        return None

    @property
    def _signer(self) -> URLSafeTimedSerializer:
        return self._signing.signer("second factor set-up")


def _is_of(person_id: str) -> ColumnElement[bool]:
    return second_factors.c.person_id == person_id


def _new_recovery_code() -> str:
    text = "".join(secrets.choice(RECOVERY_ALPHABET) for _ in range(RECOVERY_CODE_CHARACTERS))
    return f"{text[:5]}-{text[5:]}"


def _digest(person_id: str, code: str) -> str:
    """Of a recovery code of that person, however it was typed."""
    return digest_of(f"{person_id} {code.replace('-', '')}")
