"""One-time codes and recovery codes: which are good, how often, and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyotp
import pytest

from app.access.people import Person
from app.access.second_factor import OF_CODES, RECOVERY_CODES, STEP_SECONDS, SecondFactors
from app.access.signing import LIFETIME
from app.core.errors import InvalidField, SignInRefused, TooManyAttempts
from tests.access.world import World

MARK = "this browser"


@pytest.fixture
def ann(world: World) -> Person:
    return world.person(password_hash="a hash")


def turn_on(world: World, factors: SecondFactors, person: Person) -> tuple[pyotp.TOTP, list[str]]:
    """The app of the person, and the recovery codes; the clock is a step later."""
    set_up = factors.begin(world.acting_as(person, MARK), person)
    app = pyotp.TOTP(set_up.secret)
    codes = factors.add(world.acting_as(person, MARK), person, set_up, app.at(world.clock()))
    world.clock.turn(seconds=STEP_SECONDS)
    return app, codes


def is_good(world: World, factors: SecondFactors, person: Person, code: str) -> bool:
    try:
        factors.check(world.operator, person, code)
    except InvalidField:
        return False
    return True


def test_nothing_is_stored_before_a_first_code_was_right(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    set_up = factors.begin(world.acting_as(ann, MARK), ann)
    assert "Sluice" in set_up.uri
    with pytest.raises(InvalidField, match="not the code"):
        factors.add(world.acting_as(ann, MARK), ann, set_up, "000000")
    assert not factors.has(ann.id)
    again = factors.resume(world.acting_as(ann, MARK), ann, set_up.token)
    code = pyotp.TOTP(set_up.secret).at(world.clock())
    assert len(factors.add(world.acting_as(ann, MARK), ann, again, code)) == RECOVERY_CODES
    assert factors.has(ann.id)


def test_a_set_up_of_another_person_or_of_long_ago_is_not_resumed(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    bob = world.person("bob@example.org")
    token = factors.begin(world.acting_as(ann, MARK), ann).token
    for wrong in ("", "x", token + "x"):
        with pytest.raises(InvalidField, match="took too long"):
            factors.resume(world.acting_as(ann, MARK), ann, wrong)
    with pytest.raises(InvalidField, match="another browser"):
        factors.resume(world.acting_as(bob, MARK), bob, token)


def test_codes_of_the_steps_beside_are_good_and_each_is_good_once(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    app, _ = turn_on(world, factors, ann)
    now = world.clock()
    used = app.at(now, counter_offset=-1)
    assert not is_good(world, factors, ann, used), "it was used to turn codes on"
    assert is_good(world, factors, ann, app.at(now))
    assert not is_good(world, factors, ann, app.at(now))
    assert is_good(world, factors, ann, app.at(now, counter_offset=1))
    assert not is_good(world, factors, ann, app.at(now, counter_offset=2))
    assert not is_good(world, factors, ann, "١٢٣٤٥٦")


def test_a_recovery_code_is_good_once_however_it_is_typed(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    _, codes = turn_on(world, factors, ann)
    assert len(set(codes)) == RECOVERY_CODES
    assert is_good(world, factors, ann, codes[0].upper().replace("-", " "))
    assert not is_good(world, factors, ann, codes[0])
    assert factors.recovery_codes_left(ann.id) == RECOVERY_CODES - 1
    new = factors.renew_recovery_codes(world.operator, ann)
    assert not is_good(world, factors, ann, codes[1])
    assert is_good(world, factors, ann, new[1])


def test_a_code_of_somebody_else_is_wrong(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    bob = world.person("bob@example.org")
    _, codes = turn_on(world, factors, ann)
    turn_on(world, factors, bob)
    assert not is_good(world, factors, bob, codes[0])
    assert is_good(world, factors, ann, codes[0])


def test_guessing_has_to_wait_and_the_wait_ends(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    app, _ = turn_on(world, factors, ann)
    for _ in range(OF_CODES.free):
        assert not is_good(world, factors, ann, "000000")
    with pytest.raises(TooManyAttempts):
        factors.check(world.operator, ann, app.at(world.clock()))
    world.clock.turn(minutes=15)
    assert is_good(world, factors, ann, app.at(world.clock()))


def test_who_guesses_with_a_password_locks_out_neither_known_browsers_nor_another_password(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    app, codes = turn_on(world, factors, ann)
    for _ in range(OF_CODES.free):
        assert not is_good(world, factors, ann, "000000")
    with pytest.raises(TooManyAttempts):
        factors.check(world.operator, ann, codes[0])
    factors.check(world.operator, ann, app.at(world.clock()), is_known_device=True)
    with pytest.raises(TooManyAttempts):
        factors.check(world.operator, ann, codes[0])
    assert is_good(world, factors, replace(ann, password_hash="another hash"), codes[0])
    for _ in range(OF_CODES.free):
        with pytest.raises(InvalidField):
            factors.check(world.operator, ann, "000000", is_known_device=True)
    with pytest.raises(TooManyAttempts):
        factors.check(world.operator, ann, codes[1], is_known_device=True)


def test_guesses_at_the_same_time_are_all_counted(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    turn_on(world, factors, ann)

    def guess(code: int) -> bool:
        try:
            return is_good(world, factors, ann, f"{code:06}")
        except TooManyAttempts:
            return True

    with ThreadPoolExecutor(8) as pool:
        wrong = list(pool.map(guess, range(24))).count(False)
    assert wrong == OF_CODES.free


def test_a_token_of_a_right_password_works_once_and_soon(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    turn_on(world, factors, ann)
    token = factors.ask(ann, MARK)
    assert factors.person_of(token, MARK).id == ann.id
    factors.spend(token)
    with pytest.raises(SignInRefused, match="used before"):
        factors.spend(token)
    with pytest.raises(SignInRefused):
        factors.person_of("forged", MARK)
    assert LIFETIME.total_seconds() <= 600


def test_a_token_works_in_its_own_browser_until_the_password_or_the_account_changes(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    turn_on(world, factors, ann)
    token = factors.ask(ann, MARK)
    for other in ("", "another"):
        with pytest.raises(SignInRefused, match="another browser"):
            factors.person_of(token, other)
    with pytest.raises(SignInRefused, match="another browser"):
        factors.person_of(factors.ask(ann, ""), "")
    world.store_hash(ann, "another hash")
    with pytest.raises(SignInRefused, match="password was changed"):
        factors.person_of(token, MARK)
    token = factors.ask(ann, MARK)  # The old password was checked before it was changed.
    with pytest.raises(SignInRefused, match="password was changed"):
        factors.person_of(token, MARK)
    token = factors.ask(replace(ann, password_hash="another hash"), MARK)
    world.person("admin@example.org", is_admin=True)
    world.accounts.block(world.operator, ann)
    with pytest.raises(SignInRefused, match="blocked"):
        factors.person_of(token, MARK)


def test_a_set_up_is_finished_once_in_the_session_that_began_it(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    set_up = factors.begin(world.acting_as(ann, MARK), ann)
    with pytest.raises(InvalidField, match="another browser"):
        factors.resume(world.acting_as(ann, "another"), ann, set_up.token)
    app = pyotp.TOTP(set_up.secret)
    factors.add(world.acting_as(ann, MARK), ann, set_up, app.at(world.clock(), counter_offset=-1))
    code = app.at(world.clock())
    assert is_good(world, factors, ann, code)
    with pytest.raises(SignInRefused, match="used before"):
        factors.add(
            world.acting_as(ann, MARK), ann, set_up, app.at(world.clock(), counter_offset=-1)
        )
    assert not is_good(world, factors, ann, code), "a code that was used stays used"


@pytest.mark.parametrize("code", ["", "\ud800", "\u0661\u0662\u0663\u0664\u0665\u0666", "?" * 9])
def test_what_is_no_code_is_wrong(
    world: World, factors: SecondFactors, ann: Person, code: str
) -> None:
    turn_on(world, factors, ann)
    assert not is_good(world, factors, ann, code)


def test_no_secret_is_in_a_representation(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    set_up = factors.begin(world.acting_as(ann, MARK), ann)
    assert set_up.secret not in repr(set_up)
    assert set_up.token not in repr(set_up)


def test_removed_codes_are_asked_for_no_longer(
    world: World, factors: SecondFactors, ann: Person
) -> None:
    _, codes = turn_on(world, factors, ann)
    assert factors.people() == {ann.id}
    factors.remove(world.operator, ann)
    assert (factors.has(ann.id), factors.people()) == (False, set())
    assert not is_good(world, factors, ann, codes[0])
