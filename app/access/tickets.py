"""Tickets: signed texts that name something up to a time.

A ticket holds no secret, and the server stores none: it is worth what its signature says. Whatever
it names is looked up each time, so that it is worth nothing once that was revoked.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256

from itsdangerous import BadData, URLSafeSerializer

from app.access.signing import Signing


class Tickets:
    """Tickets for one purpose; those for another do not pass."""

    def __init__(self, signing: Signing, purpose: str, *, clock: Callable[[], datetime]) -> None:
        self._signing = signing
        self._purpose = purpose
        self._clock = clock

    def make(self, subject: str, expires_at: datetime) -> str:
        """The ticket for `subject`, fit for a URL; the same for the same whole second."""
        return str(self._serializer.dumps([subject, int(expires_at.timestamp())]))

    def subject_of(self, ticket: str) -> str | None:
        """What it names; None if we have not made it, or its time is over."""
        try:
            subject, expires = self._serializer.loads(ticket)
        except BadData:
            return None
        is_current = self._clock() < datetime.fromtimestamp(expires, UTC)
        return str(subject) if is_current else None

    @cached_property
    def _serializer(self) -> URLSafeSerializer:
        return URLSafeSerializer(
            self._signing.secret,
            salt=f"sluice {self._purpose}",
            signer_kwargs={"key_derivation": "hmac", "digest_method": sha256},
        )
