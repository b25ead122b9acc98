"""Passwords: which are good enough, and what checking them costs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import pytest
from argon2 import PasswordHasher

from app.access.passwords import FIRST, MAX_CHARACTERS, Passwords, require_good
from app.core.errors import InvalidField, ServerBusy
from app.ingest.slots import Slots, holding
from tests.access.world import CHEAP, GOOD_PASSWORD
from tests.waiting import wait_until


class CountingHasher(PasswordHasher):
    """Counts the hashes that are computed."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.computed = 0

    def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # type: ignore[override]  # noqa: A002
        self.computed += 1
        return super().verify(hash, password)


def is_right(passwords: Passwords, stored: str | None, password: str, priority: int = 0) -> bool:
    """Check a password when it is its turn."""
    with passwords.turn(priority):
        return passwords.is_right(stored, password)


def is_good(password: str) -> bool:
    try:
        require_good(password, ["ann@example.org", "Ann Smith"])
    except InvalidField:
        return False
    return True


def test_long_or_random_passwords_are_accepted() -> None:
    passwords = (
        GOOD_PASSWORD,
        "correct horse battery staple",
        "Пять серых гусей летят",
        "kX9#vP2$mQ",
        "x" + "three grey geese " * 11,
    )
    assert [password for password in passwords if not is_good(password)] == []


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("short", "at least 10 characters"),
        ("y" * (MAX_CHARACTERS + 1), "at most 200 characters"),
        ("password12", "easy to guess"),
        ("1234567890", "easy to guess"),
        ("qwertyuiop", "easy to guess"),
        ("aaaaaaaaaaaaaaaa", "Repeats"),
        ("P@ssw0rd2024", "easy to guess"),
        ("ann@example.org", "easy to guess"),
        ("annsmith1990", "easy to guess"),
        ("sluicesluice", "easy to guess"),
    ],
)
def test_what_is_short_common_or_about_the_person_is_refused_in_words(
    password: str, words: str
) -> None:
    with pytest.raises(InvalidField, match=words) as error:
        require_good(password, ["ann@example.org", "Ann Smith"])
    assert error.value.field == "password"


def test_the_right_password_alone_passes() -> None:
    passwords = Passwords(CHEAP)
    stored = passwords.hash(GOOD_PASSWORD)
    assert GOOD_PASSWORD not in stored
    assert is_right(passwords, stored, GOOD_PASSWORD)
    wrong = [GOOD_PASSWORD + " ", "", GOOD_PASSWORD.upper(), "x" * (MAX_CHARACTERS + 1), "\ud800"]
    assert [is_right(passwords, stored, text) for text in wrong] == [False] * 5
    assert not is_right(passwords, "not a hash", GOOD_PASSWORD)


def test_a_password_is_the_same_from_every_keyboard() -> None:
    passwords = Passwords(CHEAP)
    assert is_right(passwords, passwords.hash("caf\u00e9 au lait 7"), "cafe\u0301 au lait 7")


def test_an_unknown_account_costs_as_much_as_a_wrong_password() -> None:
    hasher = CountingHasher()
    passwords = Passwords(hasher)
    stored = passwords.hash(GOOD_PASSWORD)
    assert not is_right(passwords, stored, "something else")
    of_wrong = hasher.computed
    assert not is_right(passwords, None, "something else")
    assert (of_wrong, hasher.computed) == (1, 2)


def test_hashes_with_other_parameters_are_outdated() -> None:
    stored = Passwords(CHEAP).hash(GOOD_PASSWORD)
    assert not Passwords(CHEAP).is_outdated(stored)
    assert Passwords().is_outdated(stored)


class SlowHasher(PasswordHasher):
    """Takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.began, self.may_end = Event(), Event()

    def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # type: ignore[override]  # noqa: A002
        self.began.set()
        assert self.may_end.wait(60)
        return super().verify(hash, password)


@contextmanager
def hashing(hasher: SlowHasher, passwords: Passwords) -> Iterator[None]:
    """Another thread checks a password meanwhile."""
    thread = Thread(target=is_right, args=(passwords, None, GOOD_PASSWORD))
    thread.start()
    assert hasher.began.wait(60)
    try:
        yield
    finally:
        hasher.may_end.set()
        thread.join()


def test_a_flood_of_sign_ins_hashes_only_a_few_at_once() -> None:
    hasher = SlowHasher()
    passwords = Passwords(hasher, at_once=1, max_wait_seconds=0.01)
    with hashing(hasher, passwords), pytest.raises(ServerBusy):
        is_right(passwords, None, GOOD_PASSWORD)
    assert not is_right(passwords, None, GOOD_PASSWORD)


def test_who_waits_for_a_hash_lets_other_requests_run() -> None:
    hasher, slots = SlowHasher(), Slots(1)
    passwords, ran = Passwords(hasher, at_once=1), Event()

    def sign_in() -> None:
        with holding(slots):
            ran.set()
            is_right(passwords, None, GOOD_PASSWORD)

    with hashing(hasher, passwords):
        waiter = Thread(target=sign_in)
        waiter.start()
        assert ran.wait(60)
        with holding(slots):  # Free only because the waiter has given it up.
            hasher.may_end.set()
    waiter.join()


def test_beyond_a_few_waiters_the_server_says_at_once_that_it_is_busy() -> None:
    hasher = SlowHasher()
    passwords = Passwords(hasher, at_once=1, max_wait_seconds=600, max_waiting=0)
    with hashing(hasher, passwords), pytest.raises(ServerBusy):
        is_right(passwords, None, GOOD_PASSWORD)


@dataclass
class Line:
    """Threads that wait for a hash, one after the other, and in which order it was their turn."""

    passwords: Passwords
    order: list[str] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)

    def join(self, name: str, priority: int, client: str = "") -> None:
        """Let another thread wait; returns once it has a place, or was sent away."""
        waiting = self.passwords._queue._waiting

        def wait() -> None:
            try:
                with self.passwords.turn(priority, client=client):
                    self.order.append(name)
            except ServerBusy:
                self.order.append(f"{name} is refused")

        seen = list(waiting)
        thread = Thread(target=wait)
        thread.start()
        self.threads.append(thread)
        wait_until(lambda: waiting != seen or not thread.is_alive(), "it has a place or has none")

    def end(self) -> None:
        """Wait for all of them."""
        for thread in self.threads:
            thread.join()


def test_known_devices_go_first_and_networks_that_fail_go_last() -> None:
    hasher = SlowHasher()
    line = Line(Passwords(hasher, at_once=1, max_wait_seconds=600))
    with hashing(hasher, line.passwords):
        for name, priority in (("guesser", 40), ("new", 0), ("typo", 1), ("new too", 0)):
            line.join(name, priority)
        line.join("known", FIRST)
    line.end()
    assert line.order == ["known", "new", "new too", "typo", "guesser"]


def test_a_known_person_goes_first_once_at_a_time() -> None:
    hasher = SlowHasher()
    line = Line(Passwords(hasher, at_once=1, max_wait_seconds=600))
    with hashing(hasher, line.passwords):
        for number in range(4):
            line.join(f"Bob {number}", FIRST, "person:bob")
        line.join("new", 0)
        line.join("Ann", FIRST, "person:ann")
    line.end()
    assert line.order == ["Bob 0", "Ann", "Bob 1", "new", "Bob 2", "Bob 3"]


def test_who_hashes_first_already_does_not_go_first_again() -> None:
    line = Line(Passwords(at_once=1, max_wait_seconds=600))
    with line.passwords.turn(FIRST, client="person:bob"):
        line.join("new", 0)
        line.join("Bob", FIRST, "person:bob")
    line.end()
    assert line.order == ["new", "Bob"]


def test_a_flood_of_guesses_leaves_places_for_others() -> None:
    hasher = SlowHasher()
    line = Line(Passwords(hasher, at_once=1, max_wait_seconds=600, max_waiting=2))
    with hashing(hasher, line.passwords):
        line.join("guess 1", 40)
        line.join("guess 2", 40)
        line.join("guess 3", 40)
        line.join("new", 0)
        line.join("known", FIRST)
    line.end()
    refused = {name for name in line.order if name.endswith("is refused")}
    assert refused == {"guess 2 is refused", "guess 3 is refused"}
    assert [name for name in line.order if name not in refused] == ["known", "new", "guess 1"]


def test_slow_checks_wait_for_each_other_and_not_the_others_for_them() -> None:
    hasher = SlowHasher()
    hasher.may_end.set()
    passwords = Passwords(hasher, max_wait_seconds=0.01, slow_seconds=0)
    with passwords.turn(is_slow=True):
        with pytest.raises(ServerBusy), passwords.turn(is_slow=True):
            pass
        assert not is_right(passwords, None, GOOD_PASSWORD)
