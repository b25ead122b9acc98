"""Passwords of links, which strangers may not guess at leisure."""

from __future__ import annotations

from datetime import timedelta

from app.access.password_checks import Limits, PasswordChecks
from app.access.passwords import Passwords
from app.access.records.attempts import Patience
from app.core.addresses import is_loopback, network_of, site_of
from app.core.errors import InvalidField

OF_NETWORK = Patience(free=10, most=timedelta(minutes=1))
"""At one link. All guests of a party share one address: they never wait long for a stranger."""

SLOW_FROM = 100
"""Failures at a link, from all networks of a day, from which each check is slow. They refuse
nobody: a stranger could close the link to guests."""


class LinkPasswords:
    """Hashes and checks them."""

    def __init__(self, passwords: Passwords, checks: PasswordChecks) -> None:
        self._passwords = passwords
        self._checks = checks

    def hash(self, password: str) -> str | None:
        """What is stored of a password, and nothing of none; raises `ServerBusy`."""
        return self._passwords.hash(password) if password else None

    def check(self, link_id: str, stored: str, password: str, *, address: str) -> None:
        """Raise `InvalidField` for another password, and `TooManyAttempts` after many of them."""
        network, site = network_of(address), site_of(address)
        here = f"link:{link_id}:{network}"
        of_site = [f"link:{link_id}:{site}"] if site else []
        limits = Limits(
            refusing={here: OF_NETWORK},
            slowing=dict.fromkeys([f"link:{link_id}", *of_site], SLOW_FROM),
            networks=(here, *of_site),
            client="" if is_loopback(address) else site or network,
        )
        if self._checks.failures_after(stored, password, limits):
            raise InvalidField("This is not the password.", field="password")
