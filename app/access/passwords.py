"""Passwords: which are good enough, and how they are stored and checked."""

from __future__ import annotations

import secrets
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event, Lock

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from app.core.errors import InvalidField, ServerBusy
from app.ingest.slots import without_slot

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

MAX_WAIT_SECONDS = 25.0
"""How long a request waits for its turn before it is answered 503."""

MAX_WAITING = 24
"""In each process. Each has a thread to itself; further ones are answered 503 at once."""

MAX_WAITING_FIRST = 8
"""Places for those of `FIRST` priority, apart from the others: a flood cannot take them."""

SLOW_SECONDS = 0.5
"""Pause before a slow check, in the slow queue: two guesses a second in each process."""

FIRST = -1
"""The priority of those who go before all others."""


@dataclass(eq=False, slots=True)
class _Waiter:
    priority: int
    client: str
    granted: Event = field(default_factory=Event)
    is_refused: bool = False


class HashQueue:
    """Lets a few threads at a time hash; the lowest priority goes next, first in, first out.

    If all places are taken, a newcomer with a lower priority replaces the last in the queue. A
    client, which is a network or a person, stands behind itself: its second waiter gets a higher
    number than its first, and so on; of those with `FIRST` priority, one keeps it until it has
    hashed. Many requests at once from one client, even with right passwords, do not delay others.
    """

    def __init__(
        self, at_once: int, *, max_wait_seconds: float, max_waiting: int, max_first: int = 0
    ) -> None:
        self._at_once = at_once
        self._max_wait_seconds = max_wait_seconds
        self._places = {False: max_waiting, True: max_first}
        self._waiting: list[_Waiter] = []
        self._hashing: list[_Waiter] = []
        self._changing = Lock()

    @contextmanager
    def turn(self, priority: int = 0, client: str = "") -> Iterator[None]:
        """Run the block when it is this thread's turn; raises `ServerBusy`.

        Without a `client`, the priority stays as it is.
        """
        waiter = _Waiter(priority, client)
        with self._changing:
            self._rank(waiter)
            must_wait = len(self._hashing) >= self._at_once
            if must_wait:
                self._take_place(waiter)
            else:
                self._hashing.append(waiter)
        if must_wait:
            with without_slot():  # Uploads use the slot of this request.
                waiter.granted.wait(self._max_wait_seconds)
            with self._changing:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    waiter.is_refused = True
            if waiter.is_refused:
                raise _busy()
        try:
            yield
        finally:
            with self._changing:
                self._hashing.remove(waiter)
                if self._waiting:
                    following = min(self._waiting, key=lambda each: each.priority)
                    self._waiting.remove(following)
                    self._hashing.append(following)
                    following.granted.set()

    def _rank(self, waiter: _Waiter) -> None:
        """Let the waiter stand behind others of the same client."""
        if not waiter.client:
            return
        waiting = [each.priority for each in self._waiting if each.client == waiter.client]
        hashing = [each.priority for each in self._hashing if each.client == waiter.client]
        if waiter.priority != FIRST or FIRST in (*waiting, *hashing):
            waiter.priority = max(waiter.priority, max(waiting, default=FIRST) + 1)

    def _take_place(self, waiter: _Waiter) -> None:
        is_first = waiter.priority == FIRST
        rivals = [each for each in self._waiting if (each.priority == FIRST) is is_first]
        if len(rivals) >= self._places[is_first]:
            last = max(reversed(rivals), key=lambda each: each.priority, default=waiter)
            if last.priority <= waiter.priority:
                raise _busy()
            self._waiting.remove(last)
            last.is_refused = True
            last.granted.set()
        self._waiting.append(waiter)


class Passwords:
    """Hashes passwords with Argon2id; a flood of sign-ins does not take all memory and cores."""

    def __init__(
        self,
        hasher: PasswordHasher | None = None,
        *,
        at_once: int = HASHES_AT_ONCE,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
        max_waiting: int = MAX_WAITING,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        self._hasher = hasher or PasswordHasher()
        self._queue = HashQueue(
            at_once,
            max_wait_seconds=max_wait_seconds,
            max_waiting=max_waiting,
            max_first=MAX_WAITING_FIRST,
        )
        self._slow_queue = HashQueue(
            1, max_wait_seconds=max_wait_seconds, max_waiting=min(max_waiting, MAX_WAITING_FIRST)
        )
        self._slow_seconds = slow_seconds

    def hash(self, password: str) -> str:
        """What is stored of a password; raises `ServerBusy`."""
        with self.turn():
            return self._hasher.hash(_to_bytes(password))

    @contextmanager
    def turn(self, priority: int = 0, *, client: str = "", is_slow: bool = False) -> Iterator[None]:
        """Wait for the turn to call `is_right`; raises `ServerBusy`. See `HashQueue`.

        Slow ones wait for each other as well, and pause: they are likely to be guesses.
        """
        with ExitStack() as stack:
            if is_slow:
                stack.enter_context(self._slow_queue.turn(priority, client))
                with without_slot():
                    time.sleep(self._slow_seconds)
            stack.enter_context(self._queue.turn(priority, client))
            _ = self._decoy  # Made before the first check of either kind.
            yield

    def is_right(self, stored: str | None, password: str) -> bool:
        """Whether that hash is of this password; call it in a `turn`.

        Without a stored hash the answer is no, after as much work as if there were one: the time
        does not tell whether an account exists.
        """
        if len(password) > MAX_CHARACTERS:
            return False
        against = self._decoy if stored is None else stored
        try:
            self._hasher.verify(against, _to_bytes(password))
        except (VerificationError, InvalidHashError):
            return False
        return stored is not None

    def is_outdated(self, stored: str) -> bool:
        """Whether new passwords are hashed with other parameters."""
        return self._hasher.check_needs_rehash(stored)

    @cached_property
    def _decoy(self) -> str:
        """The hash of a password that no one has."""
        return self._hasher.hash(secrets.token_bytes(16))


def _busy() -> ServerBusy:
    return ServerBusy("Too many people are signing in at the moment.")


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

    words = ["sluice"]
    for text in about:
        parts = text.replace("@", " ").replace(".", " ").split()
        words += [text, "".join(parts), *parts]
    found = zxcvbn(password[:JUDGED_CHARACTERS], user_inputs=words)
    if found["score"] < MIN_SCORE:
        feedback = found["feedback"]
        advice = [feedback["warning"], *feedback["suggestions"][:1]]
        raise _refused(" ".join(["This is easy to guess.", *filter(None, advice)]))


def _refused(why: str) -> InvalidField:
    return InvalidField(why, field="password")


def _to_bytes(password: str) -> bytes:
    """The same bytes from every keyboard (NIST SP 800-63B, section 3.1.1.2)."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
