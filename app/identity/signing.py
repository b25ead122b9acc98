"""Signs what the server gives to visitors and wants back unchanged: cookies and tickets of links.

The secret is a file in the data folder, made when first needed. If it is lost, what was signed is
worth nothing any more, and nothing else happens: visitors of a link enter its password again.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from itsdangerous import URLSafeTimedSerializer

from app.storage.local.folder import disk_errors

SECRET_BYTES = 32
"""HMAC gains nothing from a secret that is longer than its hash (RFC 2104, section 3)."""


class Signing:
    """Signers over one secret; all processes of a server have the same."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def signer(self, purpose: str) -> URLSafeTimedSerializer:
        """Signs and checks texts of one purpose; what was signed for another does not pass."""
        return URLSafeTimedSerializer(self.secret, salt=f"sluice {purpose}")

    @cached_property
    def secret(self) -> bytes:
        """What everything is signed with; raises `StorageFailed` or `NoRoom`."""
        with disk_errors():
            with suppress(FileNotFoundError):
                return self._file.read_bytes()
            return self._make()

    def _make(self) -> bytes:
        """Of several processes that make one, the first wins; a file is never seen half-written."""
        draft = self._file.with_name(f"{self._file.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode=0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, self._file)
        finally:
            draft.unlink()
        return self._file.read_bytes()
