"""Passwords of links, which strangers may not guess at leisure."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime

from app.domain.addresses import network_of
from app.domain.errors import InvalidField, TooManyAttempts
from app.identity.passwords import Passwords
from app.identity.sign_in import in_words
from app.records.identity.attempts import AttemptRecords, Patience

OF_ADDRESS = Patience(free=10)
"""At one link. Failures from all addresses are not counted: a stranger could close it to guests."""


class LinkPasswords:
    """Hashes and checks them."""

    def __init__(
        self, passwords: Passwords, attempts: AttemptRecords, *, clock: Callable[[], datetime]
    ) -> None:
        self._passwords = passwords
        self._attempts = attempts
        self._clock = clock

    def hash(self, password: str) -> str | None:
        """What is stored of a password, and nothing of none; raises `ServerBusy`."""
        return self._passwords.hash(password) if password else None

    def check(self, link_id: str, stored: str, password: str, *, address: str) -> None:
        """Raise `InvalidField` for another password, and `TooManyAttempts` after many of them."""
        subject = f"link:{link_id}:{network_of(address)}"
        if wait := self._attempts.begin({subject: OF_ADDRESS}, self._clock()):
            seconds = math.ceil(wait.total_seconds())
            raise TooManyAttempts(f"Try again in {in_words(seconds)}.", wait_seconds=seconds)
        if not self._passwords.is_right(stored, password):
            raise InvalidField("This is not the password.", field="password")
        self._attempts.succeeded(forgiven=[subject], taken_back=())
