"""Signs what the server gives to visitors and wants back unchanged: cookies and tickets of links.

The secret is in the records, made when first needed, so that all servers that share them have the
same. If it is lost, what was signed is worth nothing any more, and nothing else happens: visitors
of a link enter its password again.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from itsdangerous import URLSafeTimedSerializer

from app.records.facts import Facts
from app.storage.local.folder import disk_errors

SECRET = "signing_secret"

SECRET_BYTES = 32
"""HMAC gains nothing from a secret that is longer than its hash (RFC 2104, section 3)."""


class Signing:
    """Signers over one secret; `file` is where earlier versions kept it, and is taken over."""

    def __init__(self, facts: Facts, file: Path | None = None) -> None:
        self._facts = facts
        self._file = file

    def signer(self, purpose: str) -> URLSafeTimedSerializer:
        """Signs and checks texts of one purpose; what was signed for another does not pass."""
        return URLSafeTimedSerializer(self.secret, salt=f"sluice {purpose}")

    @cached_property
    def secret(self) -> bytes:
        """What everything is signed with; raises what the records and the disk raise."""
        agreed = self._facts.agree(SECRET, self._propose)
        if self._file is not None:
            with suppress(OSError):  # It is of no use any more, and somebody might find it.
                self._file.unlink(missing_ok=True)
        return bytes.fromhex(agreed)

    def renew(self) -> None:
        """Make another secret: processes that start from now on have it."""
        self._facts.put(SECRET, _new_secret())

    def _propose(self) -> str:
        if self._file is not None:
            with disk_errors(), suppress(FileNotFoundError):
                return self._file.read_bytes().hex()
        return _new_secret()


def _new_secret() -> str:
    return secrets.token_bytes(SECRET_BYTES).hex()
