"""Passwords: which are good enough, and how they are stored and checked."""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import BoundedSemaphore

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from app.domain.errors import InvalidField, ServerBusy
from app.request.slots import without_slot

MIN_CHARACTERS = 10

MAX_CHARACTERS = 200
"""Enough for any sentence; longer ones are refused before they cost anything."""

JUDGED_CHARACTERS = 24
"""A password is judged by its beginning: zxcvbn needs a third of a second for 24 hostile
characters, and ten times that for 72."""

MIN_SCORE = 3
"""Of zxcvbn's 0 to 4: more than 10 to the power of 8 guesses."""

HASHES_AT_ONCE = 2
"""In each process. A hash takes 64 MiB (RFC 9106, section 4, second choice)."""

MAX_WAIT_SECONDS = 10.0
"""How long a request waits for its turn before it is told to come back."""

MAX_WAITING = 8
"""In each process. Each has a thread to itself; further ones are told to come back at once."""


class Passwords:
    """Hashes passwords with Argon2id; a flood of sign-ins does not take all memory and cores."""

    def __init__(
        self,
        hasher: PasswordHasher | None = None,
        *,
        at_once: int = HASHES_AT_ONCE,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._hasher = hasher or PasswordHasher()
        self._turns = BoundedSemaphore(at_once)
        self._places = BoundedSemaphore(max_waiting)
        self._max_wait_seconds = max_wait_seconds

    def hash(self, password: str) -> str:
        """What is stored of a password; raises `ServerBusy`."""
        with self._turn():
            return self._hasher.hash(_to_bytes(password))

    def is_right(self, stored: str | None, password: str) -> bool:
        """Whether that hash is of this password; raises `ServerBusy`.

        Without a stored hash the answer is no, after as much work as if there were one: the time
        does not tell whether an account exists.
        """
        if len(password) > MAX_CHARACTERS:
            return False
        with self._turn():
            against = self._of_nobody if stored is None else stored
            try:
                self._hasher.verify(against, _to_bytes(password))
            except (VerificationError, InvalidHashError):
                return False
        return stored is not None

    def is_outdated(self, stored: str) -> bool:
        """Whether new passwords are hashed with other parameters."""
        return self._hasher.check_needs_rehash(stored)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not (self._turns.acquire(blocking=False) or self._wait()):
            raise ServerBusy("Too many people are signing in at the moment.")
        try:
            _ = self._of_nobody  # Made before the first check of either kind.
            yield
        finally:
            self._turns.release()

    def _wait(self) -> bool:
        """Wait for a turn while uploads use the slot of this request; whether its turn came."""
        if not self._places.acquire(blocking=False):
            return False
        try:
            with without_slot():
                return self._turns.acquire(timeout=self._max_wait_seconds)
        finally:
            self._places.release()

    @cached_property
    def _of_nobody(self) -> str:
        return self._hasher.hash(secrets.token_bytes(16))


def require_good(password: str, about: Sequence[str] = ()) -> None:
    """Raise `InvalidField` for a password that is too short, too long or easy to guess.

    `about` is what a stranger would try first: the person's name and address.
    """
    if len(password) < MIN_CHARACTERS:
        raise _refused(f"Use at least {MIN_CHARACTERS} characters.")
    if len(password) > MAX_CHARACTERS:
        raise _refused(f"Use at most {MAX_CHARACTERS} characters.")
    # The import takes 0.05 s of CPU time, and most processes never check a password.
    from zxcvbn import zxcvbn  # noqa: PLC0415

    words = ["sluice", *(word for text in about for word in _words_of(text))]
    found = zxcvbn(password[:JUDGED_CHARACTERS], user_inputs=words)
    if found["score"] < MIN_SCORE:
        feedback = found["feedback"]
        advice = [feedback["warning"], *feedback["suggestions"][:1]]
        raise _refused(" ".join(["This is easy to guess.", *filter(None, advice)]))


def _words_of(text: str) -> list[str]:
    words = text.replace("@", " ").replace(".", " ").split()
    return [text, "".join(words), *words]


def _refused(why: str) -> InvalidField:
    return InvalidField(why, field="password")


def _to_bytes(password: str) -> bytes:
    """The same bytes from every keyboard (NIST SP 800-63B, section 3.1.1.2)."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
