"""Signing in with a password, and how often that may fail.

Failures are counted by account and by address. A browser in which the person has signed in before
has a cookie that says so: it is counted apart, so that strangers cannot lock anybody out of their
own account (OWASP, "Slow down online guessing attacks with device cookies").
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from datetime import datetime
from ipaddress import ip_address

from itsdangerous import BadData

from app.domain.addresses import network_of
from app.domain.errors import InvalidField, NotAllowed, TooManyAttempts, WrongCredentials
from app.identity.passwords import Passwords
from app.identity.signing import Signing
from app.records.identity.attempts import AttemptRecords, Patience
from app.records.identity.people import PeopleRecords, Person

OF_ACCOUNT = Patience(free=5)
OF_DEVICE = Patience(free=10)
OF_ADDRESS = Patience(free=30)
"""An office or a school shares one address."""

DEVICE_SECONDS = 400 * 24 * 3600

MAX_EMAIL_CHARACTERS = 254


class SignIn:
    """Checks e-mail addresses with passwords."""

    def __init__(
        self,
        people: PeopleRecords,
        attempts: AttemptRecords,
        passwords: Passwords,
        *,
        signing: Signing,
        clock: Callable[[], datetime],
        has_passwords: bool = True,
    ) -> None:
        self._people = people
        self._attempts = attempts
        self._passwords = passwords
        self._signing = signing
        self._clock = clock
        self.has_passwords = has_passwords

    def with_password(self, email: str, password: str, *, address: str, device: str) -> Person:
        """Whose address and password these are; `device` is the cookie of `remember`.

        Raises `WrongCredentials`, `TooManyAttempts`, `NotAllowed`, `ServerBusy`.
        """
        if not self.has_passwords:
            raise NotAllowed("Signing in with a password is turned off.")
        email = email.strip().lower()[:MAX_EMAIL_CHARACTERS].encode("utf-8", "replace").decode()
        person = self._people.find_by_email(email)
        known = self._known_device(person, device)
        own = {f"device:{known}": OF_DEVICE} if known else {f"account:{email}": OF_ACCOUNT}
        of_address = {} if known else _subjects_of_address(address)
        self._count({**own, **of_address})
        found = self._require_right(person, password)
        self._attempts.succeeded(forgiven=own, taken_back=of_address)
        self._refresh(found, password)
        return found

    def confirm(self, person: Person, password: str) -> None:
        """Raise `InvalidField` unless a person who is signed in knows the password too."""
        own = {f"confirm:{person.id}": OF_DEVICE}
        self._count(own)
        if not self._passwords.is_right(person.password_hash, password):
            raise InvalidField("This is not your password.", field="old_password")
        self._attempts.succeeded(forgiven=own, taken_back=())

    def remember(self, person: Person) -> str:
        """The value of a cookie by which a browser shows that the person has used it before."""
        return self._signing.signer("device").dumps([person.id, secrets.token_urlsafe(9)])

    def remove_old(self) -> None:
        """Remove what is known of failures that count no longer."""
        self._attempts.remove_old(self._clock())

    def _known_device(self, person: Person | None, device: str) -> str | None:
        if person is None or not device:
            return None
        try:
            person_id, number = self._signing.signer("device").loads(device, DEVICE_SECONDS)
        except (BadData, ValueError, TypeError):
            return None
        return str(number) if person_id == person.id else None

    def _count(self, subjects: dict[str, Patience]) -> None:
        wait = self._attempts.begin(subjects, self._clock())
        if wait:
            seconds = math.ceil(wait.total_seconds())
            raise TooManyAttempts(f"Try again in {in_words(seconds)}.", wait_seconds=seconds)

    def _require_right(self, person: Person | None, password: str) -> Person:
        stored = person.password_hash if person else None
        if not self._passwords.is_right(stored, password) or person is None:
            raise WrongCredentials("Check both, and whether the caps lock is on.")
        if person.is_blocked:
            raise NotAllowed("Your account is blocked. An administrator can let you in again.")
        return person

    def _refresh(self, person: Person, password: str) -> None:
        """Hash the password anew where parameters have changed: only now it is known."""
        if person.password_hash and self._passwords.is_outdated(person.password_hash):
            self._people.replace_hash(person, self._passwords.hash(password))


def _subjects_of_address(address: str) -> dict[str, Patience]:
    """Nothing for this machine: behind a proxy that names no clients, it would be everybody."""
    network = network_of(address)
    try:
        is_counted = not ip_address(network).is_loopback
    except ValueError:
        return {}
    return {f"address:{network}": OF_ADDRESS} if is_counted else {}


def in_words(seconds: int) -> str:
    """A wait as "30 seconds" or "5 minutes"."""
    if seconds < 60:
        return f"{seconds} second{'s' * (seconds != 1)}"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} minute{'s' * (minutes != 1)}"
