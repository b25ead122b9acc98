"""Links that work once."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest
from sqlalchemy import func, select

from app.access import audit
from app.access.audit import AuditFilter
from app.access.invitations import Invitations, Purpose
from app.access.people import Accounts, Person, all_people, roles_of
from app.access.sessions import Sessions
from app.core.access import Role
from app.core.errors import InvalidField, LastAdministrator, LinkClosed
from app.db.tables import passkeys
from tests.access.world import CHEAP, GOOD_PASSWORD, World, add_passkey
from tests.postgresql import ON_BOTH_DATABASES

ANOTHER = "seven tall ships at dawn"


@pytest.fixture
def invitations(world: World) -> Invitations:
    return world.identity.invitations


@pytest.fixture
def sessions(world: World) -> Sessions:
    return world.identity.sessions


@pytest.fixture
def accounts(world: World) -> Accounts:
    return world.accounts


def roles(world: World, person: Person) -> dict[str, Role]:
    with world.database.read() as connection:
        return dict(roles_of(connection, person.id))


def set_up(
    world: World, invitations: Invitations, code: str | None, email: str = "ann@example.org"
) -> Person:
    return invitations.set_up(
        world.operator, code or "", email=email, name=" Ann  Lee ", password=GOOD_PASSWORD
    )


def test_setting_up_makes_the_first_administrator(world: World, invitations: Invitations) -> None:
    ann = set_up(world, invitations, invitations.to_set_up(), "Ann@Example.org")
    assert (ann.email, ann.name, ann.is_admin) == ("ann@example.org", "Ann Lee", True)
    assert roles(world, ann) == {"local": Role.MANAGER}
    assert invitations.to_set_up() is None


def test_only_the_newest_link_sets_up_and_only_once(world: World, invitations: Invitations) -> None:
    old, new = invitations.to_set_up(), invitations.to_set_up()
    with pytest.raises(LinkClosed):
        set_up(world, invitations, old)
    set_up(world, invitations, new)
    with pytest.raises(LinkClosed):
        set_up(world, invitations, new, "bob@example.org")
    assert len(all_people(world.context)) == 1


def test_a_set_up_link_ends_when_there_is_an_administrator_already(
    world: World, invitations: Invitations
) -> None:
    code = invitations.to_set_up()
    world.person("root@example.org", is_admin=True)
    with pytest.raises(LinkClosed, match="already"):
        set_up(world, invitations, code)


@ON_BOTH_DATABASES
def test_of_many_who_use_a_link_at_once_one_wins(world: World, invitations: Invitations) -> None:
    code, barrier, refused = invitations.to_set_up(), Barrier(8), []

    def attempt(number: int) -> None:
        barrier.wait()
        try:
            set_up(world, invitations, code, f"person-{number}@example.org")
        except LinkClosed as error:
            refused.append(error)

    threads = [Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(refused), len(all_people(world.context))) == (7, 1)


def test_a_problem_of_the_form_does_not_use_the_link_up(
    world: World, invitations: Invitations
) -> None:
    world.person("taken@example.org")
    code = invitations.to_set_up()
    for email, password in (("taken@example.org", GOOD_PASSWORD), ("a@example.org", "password12")):
        with pytest.raises(InvalidField):
            invitations.set_up(
                world.operator, code or "", email=email, name="Ann", password=password
            )
    assert set_up(world, invitations, code).is_admin


@pytest.mark.parametrize(
    "email",
    ["", "ann", "@example.org", "ann@", "a@b@c", "a b@example.org", "a@example.org\nBcc: x@y",
     "<a@example.org>", "a,b@example.org", "x" * 65 + "@example.org", "a@" + "x" * 260, "a\x00@b"],
)  # fmt: skip
def test_what_cannot_be_an_address_is_refused(
    world: World, invitations: Invitations, email: str
) -> None:
    with pytest.raises(InvalidField) as error:
        set_up(world, invitations, invitations.to_set_up(), email)
    assert error.value.field == "email"


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, "Ann\x1b[2J", "Ann\u202eLee"])
def test_what_cannot_be_a_name_is_refused(
    world: World, invitations: Invitations, name: str
) -> None:
    with pytest.raises(InvalidField) as error:
        invitations.set_up(
            world.operator,
            invitations.to_set_up() or "",
            email="a@example.org",
            name=name,
            password=GOOD_PASSWORD,
        )
    assert error.value.field == "name"


def test_an_invitation_makes_a_member_of_the_project(
    world: World, invitations: Invitations
) -> None:
    code = invitations.to_join(
        world.operator, "Bob@example.org", project_id="local", role=Role.UPLOADER
    )
    assert invitations.find(code, Purpose.JOIN).email == "bob@example.org"
    bob = invitations.join(world.operator, code, name="Bob", password=GOOD_PASSWORD)
    assert (bob.email, bob.is_admin) == ("bob@example.org", False)
    assert roles(world, bob) == {"local": Role.UPLOADER}
    with pytest.raises(LinkClosed):
        invitations.join(world.operator, code, name="Bob", password=GOOD_PASSWORD)


@pytest.mark.parametrize("is_proven", [True, False])
def test_a_proven_address_uses_all_invitations_that_wait_for_it(
    world: World, invitations: Invitations, is_proven: bool
) -> None:
    other, email = world.project("Other"), "bob@example.org"
    here = invitations.to_join(world.operator, email, project_id="local", role=Role.VIEWER)
    there = invitations.to_join(world.operator, email, project_id=other, role=Role.MANAGER)
    invitations.to_join(world.operator, "eve@example.org", project_id=other, role=Role.VIEWER)
    bob = Person(id=world.new_id(), email=email, name="Bob", created_at=world.clock())
    used = invitations.find(here, Purpose.JOIN)
    if is_proven:
        invitations.join_by_address(used, bob)
    else:
        bob = invitations.join(world.operator, here, name="Bob", password=GOOD_PASSWORD)
    everywhere = {"local": Role.VIEWER, other: Role.MANAGER}
    assert roles(world, bob) == (everywhere if is_proven else {"local": Role.VIEWER})
    waiting = {each.email for each in invitations.waiting()}
    assert waiting == ({"eve@example.org"} if is_proven else {"eve@example.org", email})
    if not is_proven:
        assert invitations.find(there, Purpose.JOIN).email == email


def test_who_has_an_account_is_invited_to_projects_alone(
    world: World, invitations: Invitations
) -> None:
    bob, other = world.person("bob@example.org"), world.project("Other")
    world.join(bob, Role.VIEWER)
    with pytest.raises(InvalidField, match="an account already"):
        invitations.to_join(world.operator, bob.email)
    with pytest.raises(InvalidField, match="a member already"):
        invitations.to_join(world.operator, bob.email, project_id="local", role=Role.EDITOR)
    code = invitations.to_join(world.operator, bob.email, project_id=other, role=Role.EDITOR)
    invitations.accept(world.operator, code, bob)
    assert roles(world, bob) == {"local": Role.VIEWER, other: Role.EDITOR}
    with pytest.raises(LinkClosed):
        invitations.accept(world.operator, code, bob)


def test_an_invitation_that_changes_nothing_is_not_used_up(
    world: World, invitations: Invitations
) -> None:
    bob = world.person("bob@example.org")
    world.join(bob, Role.VIEWER)
    to_project = invitations.to_join(
        world.operator, "new@example.org", project_id="local", role=Role.EDITOR
    )
    to_server = invitations.to_join(world.operator, "other@example.org")
    for code in (to_project, to_server):
        with pytest.raises(InvalidField, match="already"):
            invitations.accept(world.operator, code, bob)
        invitations.find(code, Purpose.JOIN)
    world.person("other@example.org")
    with pytest.raises(LinkClosed, match="Sign in"):
        invitations.find(to_server, Purpose.JOIN)


def test_invitations_expire_and_can_be_withdrawn(world: World, invitations: Invitations) -> None:
    withdrawn = invitations.to_join(world.operator, "a@example.org")
    invitations.withdraw(world.operator, invitations.find(withdrawn, Purpose.JOIN).digest)
    code = invitations.to_join(world.operator, "b@example.org")
    assert [each.email for each in invitations.waiting()] == ["b@example.org"]
    world.clock.turn(days=7)
    for gone in (withdrawn, code):
        with pytest.raises(LinkClosed):
            invitations.join(world.operator, gone, name="B", password=GOOD_PASSWORD)
    assert invitations.waiting() == []


def test_a_link_is_good_for_its_own_purpose_only(world: World, invitations: Invitations) -> None:
    world.person("root@example.org", is_admin=True)
    join = invitations.to_join(world.operator, "a@example.org")
    reset = invitations.to_reset(world.operator, world.person())
    set_up_code = "x" * 32
    for purpose, others in {
        Purpose.SET_UP: (join, reset, set_up_code, ""),
        Purpose.JOIN: (reset, set_up_code),
        Purpose.RESET: (join, set_up_code),
    }.items():
        for code in others:
            with pytest.raises(LinkClosed):
                invitations.find(code, purpose)


def test_a_new_password_ends_all_sessions_of_the_person(
    world: World, invitations: Invitations, sessions: Sessions
) -> None:
    ann = world.person(password_hash=CHEAP.hash(GOOD_PASSWORD))
    sessions.begin(world.operator, ann, "password", agent="")
    old, new = invitations.to_reset(world.operator, ann), invitations.to_reset(world.operator, ann)
    with pytest.raises(LinkClosed):
        invitations.choose_password(world.operator, old, ANOTHER)
    assert invitations.choose_password(world.operator, new, ANOTHER).id == ann.id
    assert sessions.of_person(ann.id) == []
    found = world.find(ann)
    assert found is not None
    assert found.password_hash is not None
    assert CHEAP.verify(found.password_hash, ANOTHER)


def passkeys_of(person: Person, world: World) -> int:
    """How many passkeys the person has."""
    query = select(func.count()).where(passkeys.c.person_id == person.id)
    with world.database.read() as connection:
        return connection.execute(query).scalar_one()


def test_a_new_password_removes_what_a_thief_may_have_added(
    world: World, invitations: Invitations, accounts: Accounts
) -> None:
    ann = world.person()
    add_passkey(world.database, ann, "phone", world.clock())
    ann = invitations.choose_password(
        world.operator, invitations.to_reset(world.operator, ann), ANOTHER
    )
    assert passkeys_of(ann, world) == 0
    waiting = invitations.to_reset(world.operator, ann)
    accounts.change_password(world.acting_as(ann, ""), ann, GOOD_PASSWORD)
    with pytest.raises(LinkClosed):
        invitations.find(waiting, Purpose.RESET)


def test_a_mailed_link_changes_the_password_alone(
    world: World, invitations: Invitations, sessions: Sessions
) -> None:
    ann = world.person(is_proven=False)
    add_passkey(world.database, ann, "phone", world.clock())
    sessions.begin(world.operator, ann, "password", agent="")
    invitations.choose_password(world.operator, invitations.to_reset_by_mail(ann), ANOTHER)
    assert sessions.of_person(ann.id) == []
    assert passkeys_of(ann, world) == 1
    found = world.find(ann)
    assert found is not None
    assert not found.is_proven, "the passkey may be that of whoever made the account"


def test_a_mailed_link_works_for_the_address_it_went_to(
    world: World, invitations: Invitations
) -> None:
    ann = world.person()
    world.accounts.change_email(world.operator, ann, "new@example.org")
    late = invitations.to_reset_by_mail(ann)  # Asked for just before.
    with pytest.raises(LinkClosed):
        invitations.choose_password(world.operator, late, ANOTHER)


def test_a_mailed_link_replaces_no_link_of_an_administrator(
    world: World, invitations: Invitations
) -> None:
    ann = world.person()
    handed_out, mailed = (
        invitations.to_reset(world.operator, ann),
        invitations.to_reset_by_mail(ann),
    )
    last = invitations.to_reset_by_mail(ann)
    with pytest.raises(LinkClosed):
        invitations.find(mailed, Purpose.RESET)
    assert invitations.choose_password(world.operator, last, GOOD_PASSWORD).id == ann.id
    again = invitations.to_reset_by_mail(ann)
    assert invitations.choose_password(world.operator, handed_out, ANOTHER).id == ann.id
    with pytest.raises(LinkClosed):
        invitations.find(again, Purpose.RESET)


def test_who_is_blocked_cannot_choose_a_password(world: World, invitations: Invitations) -> None:
    world.person("root@example.org", is_admin=True)
    ann = world.person()
    code = invitations.to_reset(world.operator, ann)
    world.accounts.block(world.operator, ann)
    with pytest.raises(LinkClosed):
        invitations.choose_password(world.operator, code, GOOD_PASSWORD)


def test_changing_the_password_ends_the_other_sessions(
    world: World, accounts: Accounts, sessions: Sessions
) -> None:
    ann = world.person()
    here, _there = (sessions.begin(world.operator, ann, "password", agent=text) for text in "ab")
    mine = sessions.caller(here)
    assert mine is not None
    accounts.change_password(world.acting_as(ann, mine.session), ann, ANOTHER)
    assert [session.id for session in sessions.of_person(ann.id)] == [mine.session]
    with pytest.raises(InvalidField, match="in the meantime"):
        accounts.change_password(
            world.acting_as(ann, ""), ann, GOOD_PASSWORD
        )  # It was another one then.
    assert [session.id for session in sessions.of_person(ann.id)] == [mine.session]


def test_an_address_belongs_to_one_account(world: World, accounts: Accounts) -> None:
    ann, _bob = world.person(), world.person("bob@example.org")
    with pytest.raises(InvalidField, match="Another account"):
        accounts.change_email(world.operator, ann, "BOB@example.org")
    with pytest.raises(InvalidField, match="Another account"):
        accounts.add(world.operator, "bob@example.org")
    assert accounts.change_email(world.operator, ann, "Ann@Example.net").email == "ann@example.net"


def test_the_audit_log_says_whose_account_an_administrator_has_changed(
    world: World, accounts: Accounts
) -> None:
    ann = world.person()
    world.person("root@example.org", is_admin=True)
    moved = accounts.change_email(world.operator, ann, "new@example.org")
    accounts.block(world.operator, moved)
    accounts.unblock(world.operator, moved)
    accounts.rename(world.operator, moved, "Ann Lee")
    noted = [entry.details for entry in audit.every(world.context, AuditFilter())]
    assert noted[::-1] == [
        {"email": "new@example.org", "was": "ann@example.org", "change": "email"},
        {"email": "new@example.org", "was": "new@example.org", "change": "block"},
        {"email": "new@example.org", "was": "new@example.org", "change": "unblock"},
        {"email": "new@example.org"},
    ]


def test_the_last_administrator_stays_one(world: World, accounts: Accounts) -> None:
    ann, bob = world.person(is_admin=True), world.person("bob@example.org")
    for attempt in (accounts.block, accounts.end_admin):
        with pytest.raises(LastAdministrator):
            attempt(world.operator, ann)
    accounts.make_admin(world.operator, bob)
    accounts.end_admin(world.operator, ann)
    accounts.block(world.operator, ann)
    with pytest.raises(LastAdministrator):
        accounts.block(world.operator, bob)
