"""Signing in with a password, and how often that may fail.

What strangers do must not lock anybody out. Failures are therefore counted by account and network:
after a few, that network has to wait for that account. Failures of an account from all networks,
and of a network with all accounts, refuse no one; they put the next attempts into a slow queue,
where all of a process make two a second. The owner sees the failures on the account page, and gets
mail about many.

A browser in which the person has signed in before has a cookie that says so: it is counted apart,
and goes before others (OWASP, "Slow down online guessing attacks with device cookies").
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from math import inf

from itsdangerous import BadData

from app.access import audit
from app.access.attempts import AttemptLimits, Backoff, Failures, PasswordChecks
from app.access.audit import AuditAction, Detail
from app.access.passwords import Passwords
from app.access.people import Person, find_by_email, find_person, replace_hash
from app.access.sessions import BLOCKED
from app.access.signing import Signing
from app.core.addresses import is_loopback, network_of, site_of
from app.core.errors import (
    InvalidField,
    NotAllowed,
    ServerBusy,
    TooManyAttempts,
    WrongCredentials,
)
from app.db.context import Context, RequestContext

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

MAX_EMAIL_CHARACTERS = 254

_MAX_COUNTED_CHARACTERS = 240
"""Of an address together with a network: the records take 300 for both."""


class SignIn:
    """Checks e-mail addresses with passwords.

    `warn` tells the owner of an account that its password is being guessed; it must not wait.
    """

    def __init__(
        self,
        ctx: Context,
        checks: PasswordChecks,
        passwords: Passwords,
        *,
        signing: Signing,
        warn: Callable[[Person, int], object],
    ) -> None:
        self._ctx = ctx
        self._checks = checks
        self._passwords = passwords
        self._signing = signing
        self._warn = warn

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
        except WrongCredentials as error:
            # Otherwise a stranger could fill the audit log.
            if error.failures <= ALL_NOTED or error.failures & (error.failures - 1) == 0:
                about: dict[str, Detail] = {"email": email, "failures": error.failures}
                audit.note(ctx, AuditAction.SESSION_REFUSED, details=about)
            raise

    def confirm(self, person: Person, password: str) -> None:
        """Raise `InvalidField` unless it is their password; without one they must sign in again."""
        if person.password_hash is None or not self._ctx.settings.passwords:
            words = "Sign out and in again first, to show that it is you."
            raise InvalidField(words, field="password")
        self.require_password(person, password)

    def require_password(self, person: Person, password: str) -> None:
        """Raise `InvalidField` unless a person who is signed in knows the password too."""
        limits = _limits_of_known(person, f"confirm:{person.id}")
        failures = self._checks.failures_after(person.password_hash, password, limits)
        now = find_person(self._ctx, person.id)  # The check may have taken long.
        if failures or now is None or now.password_hash != person.password_hash:
            raise InvalidField("This is not your password.", field="old_password")

    def remember(self, person: Person) -> str:
        """The value of a cookie by which a browser shows that the person has used it before."""
        return self._signing.signer("device").dumps([person.id, secrets.token_urlsafe(9)])

    def failures_of(self, person: Person) -> Failures | None:
        """Failures of new browsers that the person should know of: those of about a day."""
        failures = self._checks.failures_of(f"account:{person.email}")
        return failures if failures is not None and failures.count >= SHOWN_FROM else None

    def known_device(self, person: Person, device: str) -> str | None:
        """The number of a browser that has a cookie of `remember` for this person."""
        if not device:
            return None
        try:
            person_id, number = self._signing.signer("device").loads(device, DEVICE_SECONDS)
        except (BadData, ValueError, TypeError):
            return None
        return str(number) if person_id == person.id else None

    def _with_password(self, email: str, password: str, *, address: str, device: str) -> Person:
        if not self._ctx.settings.passwords:
            raise NotAllowed("Signing in with a password is turned off.")
        email = email.strip().lower()[:MAX_EMAIL_CHARACTERS].encode("utf-8", "replace").decode()
        person = find_by_email(self._ctx, email)
        known = None if person is None else self.known_device(person, device)
        limits = _limits(email, address)
        if person is not None and known is not None:
            limits = _limits_of_known(person, f"device:{known}")
        stored = person.password_hash if person else None
        failures = self._checks.failures_after(stored, password, limits)
        if failures or person is None:
            self._warn_at(failures.get(f"account:{email}"), email, person)
            raise WrongCredentials(
                "Check both, and whether the caps lock is on.",
                failures=max((each.count for each in failures.values()), default=1),
            )
        if person.is_blocked:
            raise NotAllowed(BLOCKED)
        refreshed = self._refreshed(person, password)
        if refreshed is None:  # By another request, or it is another password by now.
            return self._with_password(email, password, address=address, device=device)
        return refreshed

    def _warn_at(self, failures: Failures | None, email: str, person: Person | None) -> None:
        if failures is None or failures.count < WARNED_AT:
            return
        with suppress(TooManyAttempts):  # It was said today.
            # For every address: the time that it takes would tell which ones have accounts.
            self._checks.count({f"warned:{email}": OF_WARNINGS})
            if person is not None:
                self._warn(person, failures.count)

    def _refreshed(self, person: Person, password: str) -> Person | None:
        """Hash the password again if the parameters have changed: only now it is known.

        Returns the person with the stored hash; None if another one was stored first.
        """
        if not (person.password_hash and self._passwords.is_outdated(person.password_hash)):
            return person
        try:
            new = self._passwords.hash(password)
        except ServerBusy:  # Next time.
            return person
        with self._ctx.database.write() as connection:
            is_ours = replace_hash(connection, person, new)
        return replace(person, password_hash=new) if is_ours else None


def _limits_of_known(person: Person, subject: str) -> AttemptLimits:
    """Of a browser in which the person has signed in before."""
    client = f"person:{person.id}"
    return AttemptLimits(refusing={subject: OF_DEVICE}, client=client, is_known_device=True)


def _limits(email: str, address: str) -> AttemptLimits:
    """Of a new browser. A network of this machine is not slowed.

    Behind a proxy that names no clients, it would be everybody.
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
