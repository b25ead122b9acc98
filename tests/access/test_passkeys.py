"""Passkeys sign in the person who registered them, once for each answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from app.access.passkeys import MAX_PASSKEYS, Passkey, Passkeys
from app.access.people import Person
from app.access.sessions import Sessions
from app.access.signing import LIFETIME, Browser, Signing, SingleUse
from app.core.errors import InvalidRequest, SignInRefused
from app.db.nodes import SharedValues
from tests.access.authenticator import PRESENT, Authenticator
from tests.access.world import World, new_world

HERE = Browser("https://videos.example", "mark")


@dataclass
class Desk:
    """Passkeys, and somebody in front of them with a device."""

    passkeys: Passkeys
    person: Person
    device: Authenticator
    world: World

    def register(self, name: str = "Laptop") -> Passkey:
        options, token = self.passkeys.begin_registration(self.person, HERE)
        return self.finish(self.device.create(dict(options)), token, name)

    def finish(self, made: dict[str, Any], token: str, name: str = "Laptop") -> Passkey:
        """Register what the device has made."""
        ctx = self.world.acting_as(self.person)
        return self.passkeys.register(ctx, HERE, made, token, name=name)

    def answer(self) -> tuple[dict[str, Any], str]:
        """What the device answers to a question of now, and the token for it."""
        options, token = self.passkeys.begin_sign_in(HERE)
        return self.device.get(dict(options)), token

    def sign_in(self) -> Person:
        return self.send(*self.answer())

    def send(self, answer: dict[str, Any], token: str, browser: Browser = HERE) -> Person:
        """Sign in with an answer of the device."""
        return self.passkeys.sign_in(self.world.operator, browser, answer, token)


def new_passkeys(world: World, lifetime: timedelta = LIFETIME) -> Passkeys:
    tokens = SingleUse(world.context, Signing(SharedValues(world.database)), lifetime=lifetime)
    return Passkeys(world.context, tokens, Sessions(world.context))


def new_device() -> Authenticator:
    return Authenticator(HERE.origin, "videos.example")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, database_url: str | None) -> Iterator[World]:
    """One for all these tests: each has a person of its own."""
    with new_world(tmp_path_factory.mktemp("passkeys"), database_url) as world:
        yield world


@pytest.fixture
def desk(world: World) -> Desk:
    person = world.person(f"{world.new_id()}@example.org")
    return Desk(new_passkeys(world), person, new_device(), world)


def test_a_registered_passkey_signs_its_person_in_again_and_again(desk: Desk) -> None:
    passkey = desk.register()
    assert desk.sign_in() == desk.sign_in() == desk.person
    (stored,) = desk.passkeys.of_person(desk.person.id)
    assert (stored.id, stored.name, stored.sign_count) == (passkey.id, "Laptop", 2)
    assert stored.used_at is not None


def test_a_device_that_counts_nothing_signs_in_too(desk: Desk) -> None:
    desk.device.counts = False
    desk.register()
    assert desk.sign_in() == desk.sign_in() == desk.person


def test_the_device_is_told_which_passkeys_the_person_has(desk: Desk) -> None:
    desk.register()
    options, _ = desk.passkeys.begin_registration(desk.person, HERE)
    assert len(options["excludeCredentials"]) == 1
    with pytest.raises(InvalidRequest, match="registered already"):
        desk.register()


def test_nobody_is_named_to_whoever_asks_to_sign_in(desk: Desk) -> None:
    desk.register()
    options, _ = desk.passkeys.begin_sign_in(HERE)
    assert not options.get("allowCredentials")


def test_an_answer_works_once(desk: Desk) -> None:
    desk.device.counts = False
    desk.register()
    answer, token = desk.answer()
    assert desk.send(answer, token) == desk.person
    with pytest.raises(SignInRefused, match="used before"):
        desk.send(answer, token)
    with pytest.raises(SignInRefused):
        # Base64 of an HMAC ends in two bits that mean nothing.
        desk.send(answer, token[:-1] + chr(ord(token[-1]) + 1))


def test_of_answers_that_come_together_one_is_accepted(desk: Desk) -> None:
    desk.device.counts = False
    desk.register()
    answer, token = desk.answer()

    def is_accepted(_: int) -> bool:
        try:
            return desk.send(answer, token) == desk.person
        except SignInRefused:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(is_accepted, range(8))) == 1


def test_an_answer_to_another_question_is_refused(desk: Desk) -> None:
    desk.register()
    answer, _ = desk.answer()
    with pytest.raises(SignInRefused):
        desk.send(answer, desk.answer()[1])


def test_an_answer_from_another_browser_is_refused(desk: Desk) -> None:
    desk.register()
    for other in (replace(HERE, mark="other"), replace(HERE, mark="")):
        with pytest.raises(SignInRefused):
            desk.send(*desk.answer(), other)


def test_an_answer_that_comes_too_late_is_refused(desk: Desk, world: World) -> None:
    desk.register()
    late = replace(desk, passkeys=new_passkeys(world, timedelta(seconds=-1)))
    with pytest.raises(SignInRefused, match="too long"):
        late.sign_in()


def test_what_was_given_out_to_register_does_not_sign_in(desk: Desk) -> None:
    desk.register()
    options, token = desk.passkeys.begin_registration(desk.person, HERE)
    with pytest.raises(SignInRefused):
        desk.send(desk.device.get(dict(options)), token)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://videos.example"])
def test_an_answer_given_to_another_site_is_refused(desk: Desk, origin: str) -> None:
    desk.register()
    desk.device.origin = origin
    with pytest.raises(SignInRefused):
        desk.sign_in()


def test_a_device_that_did_not_verify_its_owner_is_refused(desk: Desk) -> None:
    desk.register()
    desk.device.flags = PRESENT
    with pytest.raises(SignInRefused):
        desk.sign_in()
    desk.device = new_device()
    desk.device.flags = PRESENT
    with pytest.raises(SignInRefused):
        desk.register()


def test_a_device_that_counts_backwards_is_a_copy(desk: Desk) -> None:
    desk.register()
    desk.sign_in()
    desk.device.count = 0
    with pytest.raises(SignInRefused):
        desk.sign_in()


def test_another_key_under_the_same_id_is_refused(desk: Desk) -> None:
    desk.register()
    forger = replace(desk.device)
    with pytest.raises(SignInRefused):
        replace(desk, device=forger).sign_in()


def test_a_passkey_that_names_another_owner_is_refused(desk: Desk) -> None:
    desk.register()
    for handle in (b"", b"f" * 32):
        desk.device.user_handle = handle
        with pytest.raises(SignInRefused):
            desk.sign_in()


def test_a_removed_passkey_signs_nobody_in(desk: Desk, world: World) -> None:
    passkey = desk.register()
    other = world.person("bob@example.org")
    desk.passkeys.remove(world.acting_as(other), passkey.id)
    assert desk.sign_in() == desk.person
    desk.passkeys.remove(world.acting_as(desk.person), passkey.id)
    with pytest.raises(SignInRefused, match="no account"):
        desk.sign_in()


def test_blocked_people_do_not_get_in(desk: Desk, world: World) -> None:
    desk.register()
    world.accounts.block(world.operator, desk.person)
    with pytest.raises(SignInRefused, match="blocked"):
        desk.sign_in()


def test_a_person_has_a_limited_number_of_passkeys(desk: Desk) -> None:
    for _ in range(MAX_PASSKEYS):
        desk.device = new_device()
        desk.register()
    desk.device = new_device()
    with pytest.raises(InvalidRequest, match="too many"):
        desk.register()


@pytest.mark.parametrize("member", ["clientDataJSON", "attestationObject"])
@pytest.mark.parametrize("text", ["", "AAAA", "!", "ó", "e30", "bnVsbA", "o2NmbXRkbm9uZQ", 7])
def test_whatever_else_is_sent_to_register_is_refused(desk: Desk, member: str, text: Any) -> None:
    options, token = desk.passkeys.begin_registration(desk.person, HERE)
    made = desk.device.create(dict(options))
    made["response"][member] = text
    with pytest.raises(SignInRefused):
        desk.finish(made, token)


@pytest.mark.parametrize(
    "member", ["clientDataJSON", "authenticatorData", "signature", "userHandle"]
)
@pytest.mark.parametrize("text", ["", "AAAA", "!", "ó", "e30", "bnVsbA", None, 7])
def test_whatever_else_is_sent_to_sign_in_is_refused(desk: Desk, member: str, text: Any) -> None:
    desk.register()
    answer, token = desk.answer()
    answer["response"][member] = text
    with pytest.raises(SignInRefused):
        desk.send(answer, token)
