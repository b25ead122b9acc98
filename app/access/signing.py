"""Signs what the server gives to visitors and wants back unchanged: cookies and tickets of links.

The secret is made when first needed and kept in the records, so all nodes that share them have
the same one. Losing it only makes signed values invalid: visitors of a link enter its password
again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from itsdangerous import BadData, URLSafeSerializer, URLSafeTimedSerializer
from sqlalchemy import delete, insert
from sqlalchemy.exc import IntegrityError

from app.core.errors import SignInRefused
from app.db.context import Context
from app.db.nodes import SharedValues
from app.db.tables import spent_tokens
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
        """Replace the secret; processes that start from now on use the new one."""
        self._values.put(SECRET, _new_secret())

    def _propose(self) -> str:
        if self._file is not None:
            with disk_errors(), suppress(FileNotFoundError):
                return self._file.read_bytes().hex()
        return _new_secret()


def _new_secret() -> str:
    return secrets.token_bytes(SECRET_BYTES).hex()


# ---- tickets -------------------------------------------------------------------------------------

# Tickets: signed texts that name something up to a time.
#
# A ticket holds no secret, and the server stores none: it is worth what its signature says.
# What a ticket names is looked up each time: once that is revoked, the ticket is worthless.


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


# ---- tokens that work once -----------------------------------------------------------------------

# Signed tokens that work once, soon: what a browser must bring back to finish a sign-in.
#
# The server stores nothing when it gives one out, so strangers who ask for many cost nothing. It
# remembers those that were used, until they expire.


LIFETIME = timedelta(minutes=10)
"""A sign-in that takes longer has to begin again."""

_ID = "id"
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Browser:
    """The browser that must bring a token back.

    `origin` is where it sees the server, as in "https://videos.example". `mark` is its session, or
    something else that only this browser sends: a token that was given to another is refused.
    """

    origin: str
    mark: str

    @property
    def host(self) -> str:
        """The host name, to which passkeys belong; without the port."""
        return urlsplit(self.origin).hostname or ""


@dataclass(frozen=True, slots=True)
class SingleUse:
    """Tokens that hold a few words, readable but protected against changes."""

    ctx: Context
    signing: Signing
    _: KW_ONLY
    lifetime: timedelta = LIFETIME

    def issue(self, purpose: str, words: Mapping[str, str]) -> str:
        """A new token for one purpose."""
        signer = self.signing.signer(purpose)
        return str(signer.dumps({**words, _ID: secrets.token_hex(_ID_BYTES)}))

    def read(self, purpose: str, token: str) -> Mapping[str, str]:
        """The words of a token, and its id; raises `SignInRefused` if it is forged or too old."""
        try:
            words: Mapping[str, str] = self.signing.signer(purpose).loads(
                token, max_age=int(self.lifetime.total_seconds())
            )
        except (BadData, UnicodeEncodeError):  # Text that cannot be encoded is not ours either.
            raise SignInRefused("This took too long. Begin again.") from None
        return words

    def spend(self, words: Mapping[str, str]) -> None:
        """Let a token that was read work no more; raises `SignInRefused` if it was used before.

        Of several requests with the same token, one gets through.
        """
        now = self.ctx.clock()
        # Its id, not its text: several texts have the same signature, as base64 ends in spare bits.
        row = {"id": words[_ID], "expires_at": now + self.lifetime}
        try:
            with self.ctx.database.write() as connection:
                connection.execute(delete(spent_tokens).where(spent_tokens.c.expires_at <= now))
                connection.execute(insert(spent_tokens).values(row))
        except IntegrityError:
            raise SignInRefused("This was used before. Begin again.") from None
