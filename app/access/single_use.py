"""Signed tokens that work once, soon: what a browser must bring back to finish a sign-in.

The server stores nothing when it gives one out, so strangers who ask for many cost nothing. It
remembers those that were used, until they expire.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from itsdangerous import BadData

from app.access.records.spent_tokens import SpentTokens
from app.access.signing import Signing
from app.core.errors import SignInRefused

LIFETIME = timedelta(minutes=10)
"""Whoever takes longer to sign in begins again."""

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


class SingleUse:
    """Tokens that hold a few words; whoever has one can read them, and not change them."""

    def __init__(
        self,
        spent: SpentTokens,
        signing: Signing,
        *,
        clock: Callable[[], datetime],
        lifetime: timedelta = LIFETIME,
    ) -> None:
        self._spent = spent
        self._signing = signing
        self._clock = clock
        self._lifetime = lifetime

    def issue(self, purpose: str, words: Mapping[str, str]) -> str:
        """A new token for one purpose."""
        signer = self._signing.signer(purpose)
        return str(signer.dumps({**words, _ID: secrets.token_hex(_ID_BYTES)}))

    def read(self, purpose: str, token: str) -> Mapping[str, str]:
        """The words of a token, and its id; raises `SignInRefused` if it is forged or too old."""
        try:
            words: Mapping[str, str] = self._signing.signer(purpose).loads(
                token, max_age=int(self._lifetime.total_seconds())
            )
        except BadData:
            raise SignInRefused("This took too long. Begin again.") from None
        return words

    def spend(self, words: Mapping[str, str]) -> None:
        """Let a token that was read work no more; raises `SignInRefused` if it was used before.

        Of several requests with the same token, one gets through.
        """
        # Its id, not its text: several texts have the same signature, as base64 ends in spare bits.
        now = self._clock()
        if not self._spent.add(words[_ID], expires_at=now + self._lifetime, now=now):
            raise SignInRefused("This was used before. Begin again.")
