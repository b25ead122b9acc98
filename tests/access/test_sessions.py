"""Sessions: for whom they stand, when they end."""

from datetime import timedelta

import pytest

from app.access.people import Person
from app.access.sessions import PROVIDER, SessionRules, Sessions
from app.core.access import Action, Caller, CallerKind, Role, scope_of
from app.core.errors import NotAllowed, SecondFactorMissing, WrongCredentials
from tests.access.world import World


@pytest.fixture
def sessions(world: World) -> Sessions:
    """As one process of the server has them."""
    return new_sessions(world)


def new_sessions(world: World, rules: SessionRules | None = None) -> Sessions:
    """As another process has them, which remembers nothing."""
    return Sessions(world.context, rules=rules)


def begin(world: World, sessions: Sessions, person: Person, *, replaces: str = "") -> str:
    return sessions.begin(world.operator, person, "password", agent="Firefox", replaces=replaces)


def caller(world: World, cookie: str) -> Caller | None:
    return new_sessions(world).caller(cookie)


def test_a_cookie_stands_for_its_person_with_their_roles(world: World, sessions: Sessions) -> None:
    ann, other = world.person(is_admin=True), world.project("Other")
    world.join(ann, Role.EDITOR)
    world.join(ann, Role.VIEWER, other)
    found = sessions.caller(begin(world, sessions, ann))
    assert found is not None
    assert (found.kind, found.id, found.name) == (CallerKind.PERSON, ann.id, "ann")
    assert found.roles == {"local": Role.EDITOR, other: Role.VIEWER}
    assert (found.project, found.is_admin) == ("local", True)


def test_no_other_cookie_works(world: World, sessions: Sessions) -> None:
    cookie = begin(world, sessions, world.person())
    assert sessions.caller(cookie) is not None
    assert [sessions.caller(other) for other in ("", "x", cookie[:-1], cookie + "x")] == [None] * 4


def test_the_project_last_chosen_counts_until_the_person_leaves_it(
    world: World, sessions: Sessions
) -> None:
    ann, other = world.person(), world.project("Other")
    world.join(ann, Role.EDITOR)
    cookie = begin(world, sessions, ann)
    (session,) = sessions.of_person(ann.id)
    sessions.choose_project(world.acting_as(ann, session.id), other)
    assert getattr(sessions.caller(cookie), "project", None) == "local"
    world.join(ann, Role.VIEWER, other)
    assert getattr(caller(world, cookie), "project", None) == other


def test_an_administrator_may_be_a_member_of_nothing(world: World, sessions: Sessions) -> None:
    found = sessions.caller(begin(world, sessions, world.person(is_admin=True)))
    assert found is not None
    assert (found.is_admin, found.project, found.role) == (True, "", None)


def test_signing_in_ends_the_session_that_the_browser_had(world: World, sessions: Sessions) -> None:
    ann = world.person()
    planted = begin(world, sessions, world.person("mallory@example.org"))
    cookie = begin(world, sessions, ann, replaces=planted)
    assert cookie != planted
    assert caller(world, planted) is None
    assert getattr(caller(world, cookie), "id", None) == ann.id


def test_who_is_blocked_is_nobody(world: World, sessions: Sessions) -> None:
    ann = world.person()
    world.person("admin@example.org", is_admin=True)
    before = begin(world, sessions, ann)
    world.accounts.block(world.operator, ann)
    with pytest.raises(NotAllowed, match="blocked"):
        begin(world, sessions, ann)
    assert caller(world, before) is None
    world.accounts.unblock(world.operator, ann)
    assert caller(world, before) is None, "it was ended for good"
    assert caller(world, begin(world, sessions, ann)) is not None


@pytest.mark.parametrize(
    ("method", "becomes"),
    [
        ("password", "password+code"),
        ("link", "password+code"),
        ("passkey", "passkey"),
        (PROVIDER, PROVIDER),
    ],
)
def test_what_is_shown_besides_makes_only_weak_sessions_stronger(
    world: World, sessions: Sessions, method: str, becomes: str
) -> None:
    ann = world.person()
    cookie = sessions.begin(world.operator, ann, method, agent="")
    (before,) = sessions.of_person(ann.id)
    sessions.strengthen(world.acting_as(ann, before.id), "password+code")
    (after,) = sessions.of_person(ann.id)
    assert after.method == becomes
    world.clock.turn(hours=20)
    caller(world, cookie)
    world.clock.turn(hours=5)
    assert (caller(world, cookie) is None) == (method == PROVIDER)


@pytest.mark.parametrize("method", ["password", "password+code", "link"])
def test_no_session_begins_with_a_password_that_was_changed(
    world: World, sessions: Sessions, method: str
) -> None:
    before = world.person(password_hash="a hash")
    world.store_hash(before, "another hash")
    with pytest.raises(WrongCredentials):
        sessions.begin(world.operator, before, method, agent="")
    assert sessions.of_person(before.id) == []
    for other in ("passkey", PROVIDER):
        assert sessions.begin(world.operator, before, other, agent="")


def test_no_session_begins_for_an_account_that_was_deleted(
    world: World, sessions: Sessions
) -> None:
    ann = world.person()
    world.person("admin@example.org", is_admin=True)
    world.accounts.delete(world.operator, ann)
    with pytest.raises(WrongCredentials):
        sessions.begin(world.operator, ann, "passkey", agent="")


def test_a_session_ends_thirty_days_after_its_last_use(world: World, sessions: Sessions) -> None:
    cookie = begin(world, sessions, world.person())
    world.clock.turn(days=29)
    assert caller(world, cookie) is not None
    world.clock.turn(days=29)
    assert caller(world, cookie) is not None
    world.clock.turn(days=30)
    assert caller(world, cookie) is None


@pytest.mark.parametrize(("method", "days"), [("password", 90), (PROVIDER, 1), ("passkey", 90)])
def test_a_session_ends_at_its_age_even_if_it_is_used(
    world: World, sessions: Sessions, method: str, days: int
) -> None:
    ann = world.person()
    cookie = sessions.begin(world.operator, ann, method, agent="")
    for _ in range(9):
        world.clock.turn(days=days / 10)
        assert caller(world, cookie) is not None
    world.clock.turn(days=days / 10)
    assert caller(world, cookie) is None
    assert sessions.of_person(ann.id) == []


def test_use_is_noted_once_a_minute(world: World, sessions: Sessions) -> None:
    ann = world.person()
    cookie = begin(world, sessions, ann)
    began = world.clock()
    world.clock.turn(seconds=59)
    caller(world, cookie)
    assert sessions.of_person(ann.id)[0].active_at == began
    world.clock.turn(seconds=2)
    caller(world, cookie)
    assert sessions.of_person(ann.id)[0].active_at == world.clock()


@pytest.mark.parametrize("seconds", [10, 29])
def test_a_session_in_use_goes_on_however_short_it_may_be_idle(
    world: World, seconds: float
) -> None:
    rules, ann = SessionRules(idle=timedelta(seconds=60)), world.person()
    cookie = begin(world, new_sessions(world, rules), ann)
    for _ in range(20):
        world.clock.turn(seconds=seconds)
        assert new_sessions(world, rules).caller(cookie) is not None
    world.clock.turn(seconds=60)
    assert new_sessions(world, rules).caller(cookie) is None


@pytest.mark.parametrize(
    "rules",
    [SessionRules(idle=timedelta(hours=1)), SessionRules(longest=timedelta(hours=2))],
    ids=["idle", "longest"],
)
def test_a_shorter_life_holds_for_sessions_that_have_begun(
    world: World, sessions: Sessions, rules: SessionRules
) -> None:
    ann = world.person()
    cookie = begin(world, sessions, ann)
    world.clock.turn(hours=3)
    assert new_sessions(world, rules).caller(cookie) is None
    assert new_sessions(world, rules).of_person(ann.id) == []
    assert caller(world, cookie) is not None


def test_people_see_and_end_their_own_sessions(world: World, sessions: Sessions) -> None:
    ann, bob = world.person(), world.person("bob@example.org")
    first, second, third = (begin(world, sessions, ann) for _ in range(3))
    bobs = begin(world, sessions, bob)
    ids = [session.id for session in sessions.of_person(ann.id)]
    assert len(ids) == 3
    sessions.end_one(world.acting_as(bob), ids[0])
    assert len(sessions.of_person(ann.id)) == 3
    mine = world.acting_as(ann, getattr(caller(world, second), "session", ""))
    sessions.end_one(mine, getattr(caller(world, first), "session", ""))
    assert len(sessions.of_person(ann.id)) == 2
    sessions.end_others(mine)
    alive = [cookie for cookie in (first, second, third, bobs) if caller(world, cookie)]
    assert alive == [second, bobs]
    sessions.end(mine, second)
    assert sessions.caller(second) is None


def test_the_database_has_nothing_that_could_be_used_as_a_cookie(
    world: World, sessions: Sessions
) -> None:
    ann = world.person()
    cookie = begin(world, sessions, ann)
    assert cookie not in repr(sessions.of_person(ann.id))
    assert sessions.caller(sessions.of_person(ann.id)[0].digest) is None


@pytest.mark.parametrize("method", ["password", "link", "password+code", "passkey", PROVIDER])
def test_of_whom_more_than_a_password_is_demanded_can_only_secure_the_account(
    world: World, method: str
) -> None:
    rules = SessionRules(second_factor="everyone")
    sessions = new_sessions(world, rules)
    ann = world.person(is_admin=True)
    world.join(ann, Role.MANAGER)
    found = sessions.caller(sessions.begin(world.operator, ann, method, agent=""))
    assert found is not None
    refused = set()
    for action in Action:
        try:
            scope_of(found, action)
        except SecondFactorMissing:
            refused.add(action)
        except NotAllowed:  # Of links and of this machine alone.
            pass
    is_weak = method in {"password", "link"}
    assert refused == (set(Action) - {Action.VISIT, Action.SECURE_ACCOUNT} if is_weak else set())
