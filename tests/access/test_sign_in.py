"""Signing in with a password, and how often it may fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Barrier, Thread

import pytest
from argon2 import PasswordHasher

from app.access.attempts import AttemptRecords, PasswordChecks, in_words
from app.access.passwords import HASHES_AT_ONCE, MAX_WAITING, Passwords
from app.access.people import Person
from app.access.sessions import (
    OF_ACCOUNT,
    OF_ACCOUNT_FROM_SITE,
    OF_DEVICE,
    SHOWN_FROM,
    SLOW_FROM_NETWORK,
    SLOW_OF_ACCOUNT,
    WARNED_AT,
    SignIn,
)
from app.access.signing import Signing
from app.core.errors import (
    InvalidField,
    NotAllowed,
    ServerBusy,
    TooManyAttempts,
    UploadError,
    WrongCredentials,
)
from app.db.nodes import SharedValues
from app.settings import Settings
from tests.access.world import CHEAP, GOOD_PASSWORD, World
from tests.postgresql import ON_BOTH_DATABASES
from tests.waiting import wait_until

EMAIL = "ann@example.org"
ADDRESS = "192.0.2.7"


class CountedPasswords(Passwords):
    """Counts the slow checks, and may be too busy for any."""

    def __init__(self) -> None:
        super().__init__(CHEAP, slow_seconds=0)
        self.slow_checks = 0
        self.is_busy = False

    @contextmanager
    def turn(self, priority: int = 0, *, client: str = "", is_slow: bool = False) -> Iterator[None]:
        """As in `Passwords`."""
        if self.is_busy:
            raise ServerBusy("Busy.")
        self.slow_checks += is_slow
        with super().turn(priority, client=client, is_slow=is_slow):
            yield


@dataclass
class Door:
    """Tries to sign in."""

    world: World
    passwords: CountedPasswords
    has_passwords: bool = True
    warnings: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        checks = PasswordChecks(
            self.passwords, AttemptRecords(self.world.database), clock=self.world.clock
        )
        self.rule = SignIn(
            replace(
                self.world.context,
                settings=Settings(sign_in=frozenset({"passwords"} if self.has_passwords else ())),
            ),
            checks,
            self.passwords,
            signing=Signing(SharedValues(self.world.database)),
            warn=lambda person, count: self.warnings.append((person.email, count)),
        )

    def try_(
        self, password: str = "wrong", email: str = EMAIL, address: str = ADDRESS, device: str = ""
    ) -> Person | UploadError:
        """The person, or why not."""
        try:
            ctx = replace(self.world.operator, address=address)
            return self.rule.with_password(ctx, email, password, device=device)
        except UploadError as error:
            return error

    def fail(self, times: int, **given: str) -> None:
        """Enter so many wrong passwords, after each wait."""
        for _ in range(times):
            answer = self.try_(**given)
            assert isinstance(answer, WrongCredentials), answer

    def fail_everywhere(self, times: int, email: str = EMAIL) -> None:
        """Enter so many wrong passwords, each from another address."""
        for number in range(times):
            self.fail(1, email=email, address=f"10.{number >> 8}.{number & 255}.1")


def new_door(world: World, *, has_passwords: bool = True) -> Door:
    return Door(world, CountedPasswords(), has_passwords)


@pytest.fixture
def door(world: World) -> Door:
    return new_door(world)


@pytest.fixture
def ann(world: World) -> Person:
    return world.person(EMAIL, password_hash=CHEAP.hash(GOOD_PASSWORD))


def test_the_right_password_signs_in(door: Door, ann: Person) -> None:
    assert door.try_(GOOD_PASSWORD) == ann
    assert door.try_(GOOD_PASSWORD, email="  Ann@Example.ORG ") == ann


@pytest.mark.parametrize("email", [EMAIL, "nobody@example.org", "", "@", "x" * 100_000])
def test_wrong_passwords_and_unknown_accounts_are_refused_alike(
    door: Door, ann: Person, email: str
) -> None:
    answer = door.try_("wrong", email=email)
    assert isinstance(answer, WrongCredentials)
    assert str(answer) == str(door.try_("wrong"))


def test_an_account_without_a_password_takes_none(door: Door, world: World) -> None:
    world.person("oidc@example.org")
    assert isinstance(door.try_("", email="oidc@example.org"), WrongCredentials)


def test_who_is_blocked_learns_so_only_with_the_right_password(
    door: Door, world: World, ann: Person
) -> None:
    world.accounts.block(world.operator, ann)
    assert isinstance(door.try_(GOOD_PASSWORD), NotAllowed)
    assert isinstance(door.try_("wrong"), WrongCredentials)


def test_passwords_can_be_turned_off(world: World, ann: Person) -> None:
    door = new_door(world, has_passwords=False)
    assert isinstance(door.try_(GOOD_PASSWORD), NotAllowed)


def test_a_hash_with_old_parameters_is_replaced_at_the_next_sign_in(
    door: Door, world: World
) -> None:
    old = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1).hash(GOOD_PASSWORD)
    ann = world.person(EMAIL, password_hash=old)
    signed_in = door.try_(GOOD_PASSWORD)
    found = world.find(ann)
    assert found is not None
    assert found.password_hash not in {None, old}
    assert door.try_(GOOD_PASSWORD) == signed_in == found


@pytest.mark.parametrize("new", [GOOD_PASSWORD, "another password"])
def test_a_hash_that_was_replaced_while_it_was_checked_is_checked_anew(
    door: Door, world: World, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    old = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1).hash(GOOD_PASSWORD)
    ann, stored, hash_anew = world.person(EMAIL, password_hash=old), CHEAP.hash(new), CHEAP.hash

    def hash_late(password: str) -> str:
        world.store_hash(ann, stored)
        return hash_anew(password)

    monkeypatch.setattr(door.passwords, "hash", hash_late)
    answer = door.try_(GOOD_PASSWORD)
    if new == GOOD_PASSWORD:
        assert answer == world.find(ann)
    else:
        assert isinstance(answer, WrongCredentials)
    assert getattr(world.find(ann), "password_hash", None) == stored


@pytest.mark.parametrize("email", [EMAIL, "nobody@example.org"])
def test_failures_make_a_network_wait_longer_and_longer_for_that_account(
    door: Door, ann: Person, world: World, email: str
) -> None:
    door.fail(OF_ACCOUNT.free, email=email)
    waits = []
    for _ in range(4):
        answer = door.try_(GOOD_PASSWORD, email=email)
        assert isinstance(answer, TooManyAttempts)
        waits.append(answer.retry_after_seconds)
        world.clock.turn(seconds=answer.retry_after_seconds or 0)
        door.fail(1, email=email)
    assert waits == [1, 2, 4, 8]


def test_the_wait_has_a_longest_and_failures_are_forgotten_after_a_day(
    door: Door, ann: Person, world: World
) -> None:
    for _ in range(40):
        door.try_()
        world.clock.turn(minutes=15)
    door.try_()
    answer = door.try_()
    assert isinstance(answer, TooManyAttempts)
    assert answer.retry_after_seconds == 15 * 60
    assert str(answer) == "Try again in 15 minutes."
    world.clock.turn(days=1)
    door.fail(OF_ACCOUNT.free)


def test_a_sign_in_ends_the_count_of_the_account(door: Door, ann: Person) -> None:
    for _ in range(3):
        door.fail(OF_ACCOUNT.free - 1)
        assert door.try_(GOOD_PASSWORD) == ann


def test_strangers_elsewhere_never_lock_out_a_new_browser(door: Door, ann: Person) -> None:
    door.fail_everywhere(300)
    assert door.try_(GOOD_PASSWORD) == ann
    door.fail(OF_ACCOUNT.free)
    assert isinstance(door.try_(GOOD_PASSWORD), TooManyAttempts), "here somebody guesses"
    assert door.try_(GOOD_PASSWORD, address="198.51.100.1") == ann


def test_strangers_at_the_same_address_never_lock_out_another_account(
    door: Door, ann: Person
) -> None:
    for number in range(100):
        door.fail(1, email=f"nobody-{number}@example.org")
    assert door.try_(GOOD_PASSWORD) == ann


@pytest.mark.parametrize("email", [EMAIL, "nobody@example.org"])
def test_many_failures_of_an_account_everywhere_make_its_checks_slow(
    door: Door, ann: Person, email: str
) -> None:
    door.fail_everywhere(SLOW_OF_ACCOUNT, email=email)
    assert door.passwords.slow_checks == 0
    door.try_(GOOD_PASSWORD, email=email)
    assert door.passwords.slow_checks == 1
    door.fail(1, email="another@example.org")
    assert door.passwords.slow_checks == 1


def test_many_failures_of_a_network_make_its_checks_slow(door: Door, ann: Person) -> None:
    for number in range(SLOW_FROM_NETWORK):
        door.fail(1, email=f"nobody-{number}@example.org")
    assert door.passwords.slow_checks == 0
    door.try_(GOOD_PASSWORD, address="198.51.100.1")
    assert door.passwords.slow_checks == 0
    door.try_(GOOD_PASSWORD)
    assert door.passwords.slow_checks == 1
    door.try_(GOOD_PASSWORD, device=door.rule.remember(ann))
    assert door.passwords.slow_checks == 1, "a known device is never slow"


def test_a_server_that_is_busy_counts_nothing(door: Door, ann: Person) -> None:
    door.passwords.is_busy = True
    answers = [door.try_(GOOD_PASSWORD) for _ in range(3 * OF_ACCOUNT.free)]
    assert {type(answer) for answer in answers} == {ServerBusy}
    door.passwords.is_busy = False
    assert door.try_(GOOD_PASSWORD) == ann
    door.fail(OF_ACCOUNT.free)


def test_counts_fall_between_failures(door: Door, ann: Person, world: World) -> None:
    for _ in range(2 * WARNED_AT):
        world.clock.turn(hours=23)
        door.fail(1)
    assert (door.passwords.slow_checks, door.warnings) == (0, [])
    assert door.rule.failures_of(ann) is None


def test_the_owner_gets_a_mail_a_day_while_failures_go_on(
    door: Door, ann: Person, world: World
) -> None:
    for _ in range(3 * 24):
        door.fail_everywhere(2)
        world.clock.turn(hours=1)
    assert [count for _, count in door.warnings] == [WARNED_AT, 45, 47], "a day has 48"


def test_the_owner_gets_one_mail_about_many_failures_and_sees_them(
    door: Door, ann: Person, world: World
) -> None:
    door.fail_everywhere(SHOWN_FROM - 1)
    assert door.rule.failures_of(ann) is None
    door.fail_everywhere(WARNED_AT)
    assert door.warnings == [(EMAIL, WARNED_AT)]
    door.try_(GOOD_PASSWORD)
    shown = door.rule.failures_of(ann)
    assert shown is not None
    assert (shown.count, shown.last_at) == (WARNED_AT + SHOWN_FROM - 1, world.clock())
    world.clock.turn(days=1)
    assert door.rule.failures_of(ann) is None
    door.fail_everywhere(WARNED_AT, email="nobody@example.org")
    assert len(door.warnings) == 1


def test_strangers_cannot_lock_out_a_browser_that_was_signed_in_before(
    door: Door, ann: Person
) -> None:
    device = door.rule.remember(ann)
    door.fail(OF_ACCOUNT.free)
    assert isinstance(door.try_(GOOD_PASSWORD), TooManyAttempts)
    assert door.try_(GOOD_PASSWORD, device=device) == ann
    assert isinstance(door.try_(GOOD_PASSWORD), TooManyAttempts), "others there still wait"


def test_a_known_browser_has_a_limit_of_its_own(door: Door, ann: Person, world: World) -> None:
    device, other = door.rule.remember(ann), door.rule.remember(world.person("bob@example.org"))
    door.fail(OF_DEVICE.free, device=device)
    assert isinstance(door.try_(GOOD_PASSWORD, device=device), TooManyAttempts)
    assert door.try_(GOOD_PASSWORD, device=door.rule.remember(ann)) == ann
    door.fail(OF_ACCOUNT.free, device=other)
    assert isinstance(door.try_(device=other), TooManyAttempts), "it is another person's"


@pytest.mark.parametrize("device", ["x", "W10.a.b", "....", "\ud800", "é" * 3000])
def test_a_forged_device_cookie_is_no_cookie(door: Door, ann: Person, device: str) -> None:
    door.fail(OF_ACCOUNT.free, device=device)
    assert isinstance(door.try_(GOOD_PASSWORD, device=device), TooManyAttempts)


def test_an_ipv6_network_counts_as_one_address(door: Door, ann: Person) -> None:
    for number in range(OF_ACCOUNT.free):
        door.fail(1, address=f"2001:db8:0:1::{number}")
    assert isinstance(door.try_(address="2001:db8:0:1:ffff::1"), TooManyAttempts)
    for address in ("2001:db8:0:2::1", "::ffff:192.0.2.9"):
        door.fail(1, address=address)


def test_an_ipv6_site_cannot_guess_with_each_of_its_networks(door: Door, ann: Person) -> None:
    for number in range(OF_ACCOUNT_FROM_SITE.free):
        door.fail(1, address=f"2001:db8:7:{number:x}::1")
    assert isinstance(door.try_(GOOD_PASSWORD, address="2001:db8:7:ffff::1"), TooManyAttempts)
    assert door.try_(GOOD_PASSWORD, address="2001:db8:8::1") == ann


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", ""])
def test_a_proxy_that_names_no_clients_is_not_counted_as_one(
    door: Door, ann: Person, address: str
) -> None:
    for number in range(SLOW_FROM_NETWORK + 1):
        door.fail(1, email=f"{number}@example.org", address=address)
    assert door.passwords.slow_checks == 0
    last = door.try_(email="last@example.org", address=address)
    assert isinstance(last, WrongCredentials)
    assert last.failures == SLOW_FROM_NETWORK + 2, "so that the audit log notes fewer of many"


@ON_BOTH_DATABASES
def test_many_attempts_at_the_same_time_are_all_counted(door: Door, ann: Person) -> None:
    answers: list[Person | UploadError] = []
    barrier = Barrier(16)

    def attempt() -> None:
        barrier.wait()
        answers.append(door.try_())

    threads = [Thread(target=attempt) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    let_through = [answer for answer in answers if isinstance(answer, WrongCredentials)]
    assert OF_ACCOUNT.free <= len(let_through) < OF_ACCOUNT.free + HASHES_AT_ONCE


@pytest.mark.parametrize(
    ("flood", "address"),
    [(["192.0.2.66"] * 2, ADDRESS), (["2001:db8:7:1::1", "2001:db8:7:2::1"], "2001:db8:8::1")],
)
def test_many_right_passwords_from_one_network_take_no_place_from_others(
    door: Door, world: World, ann: Person, flood: list[str], address: str
) -> None:
    world.person("mallory@example.org", password_hash=ann.password_hash)
    waiting, answers = door.passwords._queue._waiting, dict[int, Person | UploadError]()

    def sign_in(number: int, email: str, from_: str) -> None:
        answers[number] = door.try_(GOOD_PASSWORD, email=email, address=from_)

    def begin(number: int, email: str, from_: str) -> Thread:
        thread, seen = Thread(target=sign_in, args=(number, email, from_)), list(waiting)
        thread.start()
        wait_until(lambda: waiting != seen or not thread.is_alive(), "it has a place or has none")
        return thread

    with ExitStack() as turns:
        for _ in range(HASHES_AT_ONCE):
            turns.enter_context(door.passwords.turn())
        threads = [
            begin(number, "mallory@example.org", flood[number % 2]) for number in range(MAX_WAITING)
        ]
        threads.append(begin(MAX_WAITING, EMAIL, address))
    for thread in threads:
        thread.join()
    assert answers[MAX_WAITING] == ann
    refused = [number for number, answer in answers.items() if isinstance(answer, ServerBusy)]
    assert refused == [MAX_WAITING - 1], "the last of the flood makes room"


def test_many_right_passwords_at_the_same_time_are_never_refused(door: Door, ann: Person) -> None:
    answers: list[Person | UploadError] = []
    barrier = Barrier(24)

    def attempt() -> None:
        barrier.wait()
        answers.append(door.try_(GOOD_PASSWORD))

    threads = [Thread(target=attempt) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [ann] * 24


def test_who_is_signed_in_confirms_the_password_as_rarely(door: Door, ann: Person) -> None:
    door.rule.confirm(ann, GOOD_PASSWORD)
    for _ in range(OF_DEVICE.free):
        with pytest.raises(InvalidField):
            door.rule.confirm(ann, "wrong")
    with pytest.raises(TooManyAttempts):
        door.rule.confirm(ann, GOOD_PASSWORD)


def test_a_password_that_was_changed_while_it_was_checked_confirms_nothing(
    door: Door, ann: Person, world: World
) -> None:
    world.store_hash(ann, CHEAP.hash("another password"))
    with pytest.raises(InvalidField):
        door.rule.confirm(ann, GOOD_PASSWORD)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (59, "59 seconds"), (60, "1 minute"), (61, "2 minutes")],
)
def test_waits_are_told_in_words(seconds: int, words: str) -> None:
    assert in_words(seconds) == words
