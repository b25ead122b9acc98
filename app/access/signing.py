"""Signs what the server gives to visitors and wants back unchanged: cookies and tickets of links.

The secret is made when first needed and kept in the records, so all nodes that share them have
the same one. Losing it only makes signed values invalid: visitors of a link enter its password
again.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from itsdangerous import URLSafeTimedSerializer

from app.db.nodes import SharedValues
from app.storage.local.folder import disk_errors

SECRET = "signing_secret"

OLD_SECRET = "link-secret"
"""The file in the data folder where earlier versions kept it."""

SECRET_BYTES = 32
"""HMAC gains nothing from a secret that is longer than its hash (RFC 2104, section 3)."""


class Signing:
    """Signers with one secret; one that an earlier version left in `file` is taken over."""

    def __init__(self, values: SharedValues, file: Path | None = None) -> None:
        self._values = values
        self._file = file

    def signer(self, purpose: str) -> URLSafeTimedSerializer:
        """Signs and checks texts of one purpose; what was signed for another does not pass."""
        return URLSafeTimedSerializer(self.secret, salt=f"sluice {purpose}")

    @cached_property
    def secret(self) -> bytes:
        """The secret that everything is signed with; raises errors of the records and the disk."""
        agreed = self._values.agree(SECRET, self._propose)
        if self._file is not None:
            with suppress(OSError):  # Not used any more, and could leak.
                self._file.unlink(missing_ok=True)
        return bytes.fromhex(agreed)

    def renew(self) -> None:
        """Replace the secret; processes that start from now on use the new one.

        Until all nodes were restarted they digest names with different keys, so limits on senders
        hold per node.
        """
        self._values.put(SECRET, _new_secret())

    def _propose(self) -> str:
        if self._file is not None:
            with disk_errors(), suppress(FileNotFoundError):
                return self._file.read_bytes().hex()
        return _new_secret()


def _new_secret() -> str:
    return secrets.token_bytes(SECRET_BYTES).hex()
