"""Whose account somebody gets who comes from the OpenID provider."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import insert, select

from app.access.creators import RevocationCounts
from app.access.invitations import Invitation, InvitationRecords, Purpose
from app.access.openid import Joining, OpenIdAccounts, ProviderAccountRecords, ProviderIdentity
from app.access.people import Person, roles_of
from app.access.sessions import SessionRecords, Sessions
from app.access.upload_links import LinkTerms
from app.core.access import FIRST_PROJECT, Role
from app.core.errors import SignInRefused
from app.db.tables import recovery_codes, second_factors
from tests.access.world import World
from tests.acting import acting

ISSUER = "https://provider.example"
OPEN_TO_EXAMPLE = Joining(roles={"@example.org": Role.UPLOADER, "films": Role.UPLOADER})


def accounts(world: World, joining: Joining = OPEN_TO_EXAMPLE) -> OpenIdAccounts:
    return OpenIdAccounts(
        ProviderAccountRecords(world.database),
        world.people,
        InvitationRecords(world.database),
        joining=joining,
        clock=world.clock,
        new_id=world.new_id,
    )


def somebody(
    subject: str = "1",
    email: str = "ann@example.org",
    *,
    is_verified: bool = True,
    groups: tuple[str, ...] = (),
    name: str = "Ann",
) -> ProviderIdentity:
    return ProviderIdentity(
        issuer=ISSUER,
        subject=subject,
        email=email,
        is_email_verified=is_verified,
        groups=frozenset(groups),
        name=name,
    )


def arrived(accounts: OpenIdAccounts, identity: ProviderIdentity) -> Person:
    return accounts.arrive(identity).person


def roles(world: World, person_id: str) -> dict[str, Role]:
    with world.database.read() as connection:
        return dict(roles_of(connection, person_id))


def test_a_verified_address_ties_the_person_who_has_it(world: World) -> None:
    ann = world.person("ann@example.org")
    assert arrived(accounts(world), somebody()) == ann
    changed = somebody(email="other@elsewhere.example", is_verified=False)
    assert arrived(accounts(world), changed) == ann


def test_an_unverified_address_ties_and_makes_nobody(world: World) -> None:
    world.person("ann@example.org")
    for email in ("ann@example.org", "new@example.org"):
        with pytest.raises(SignInRefused, match="not verified"):
            arrived(accounts(world), somebody(email=email, is_verified=False, groups=("films",)))


def test_the_first_time_is_told_apart(world: World) -> None:
    world.person("ann@example.org")
    for subject, email in (("1", "ann@example.org"), ("2", "new@example.org")):
        steps = [accounts(world).arrive(somebody(subject, email)) for _ in range(2)]
        assert [step.is_first for step in steps] == [True, False]
        assert [step.is_new for step in steps] == [subject == "2", False]


def test_an_address_ties_once(world: World) -> None:
    world.person("ann@example.org")
    arrived(accounts(world), somebody("1"))
    with pytest.raises(SignInRefused, match="another account"):
        arrived(accounts(world), somebody("2"))


def test_who_has_an_address_of_the_domain_joins(world: World) -> None:
    person = arrived(accounts(world), somebody())
    assert (person.email, person.name, person.is_admin) == ("ann@example.org", "Ann", False)
    assert roles(world, person.id) == {FIRST_PROJECT: Role.UPLOADER}
    assert arrived(accounts(world), somebody()) == person


def test_members_of_a_group_join_with_the_highest_role_that_is_set(world: World) -> None:
    joining = Joining(roles={"@example.org": Role.VIEWER, "films": Role.EDITOR, "a": Role.VIEWER})
    for number, (groups, role) in enumerate(
        [(("staff",), Role.VIEWER), (("a", "films"), Role.EDITOR)]
    ):
        identity = somebody(str(number), f"{number}@example.org", groups=groups)
        person = arrived(accounts(world, joining), identity)
        assert roles(world, person.id) == {FIRST_PROJECT: role}


@pytest.mark.parametrize(
    "email", ["a@elsewhere.example", "a@sub.example.org", "a@notexample.org", "a@example.org.evil"]
)
def test_others_do_not_join(world: World, email: str) -> None:
    with pytest.raises(SignInRefused, match="not invited"):
        arrived(accounts(world), somebody(email=email, groups=("others",)))
    assert world.people.all() == []


def test_nobody_joins_where_nothing_is_set(world: World) -> None:
    with pytest.raises(SignInRefused, match="not invited"):
        arrived(accounts(world, Joining()), somebody(email="ann@example.org", groups=("films",)))


def test_who_is_invited_joins_the_project_of_the_invitation(world: World) -> None:
    project, now = world.project("Wedding"), world.clock()
    invitations = InvitationRecords(world.database)
    for number, (email, lifetime) in enumerate((("ann@x.example", 1), ("bob@x.example", -1))):
        invitation = Invitation(
            digest=f"{number:064}",
            purpose=Purpose.JOIN,
            created_at=now,
            expires_at=now + timedelta(days=lifetime),
            project_id=project,
            role=Role.EDITOR,
            email=email,
        )
        invitations.add(invitation)
    arrival = accounts(world, Joining()).arrive(somebody(email="ann@x.example"))
    assert roles(world, arrival.person.id) == arrival.joined == {project: Role.EDITOR}
    assert invitations.waiting(now) == []
    with pytest.raises(SignInRefused, match="not invited"):
        arrived(accounts(world, Joining()), somebody("2", "bob@x.example"))


def test_blocked_people_do_not_get_in(world: World) -> None:
    ann = world.person("ann@example.org")
    arrived(accounts(world), somebody())
    bob = world.person("bob@example.org")
    for person in (ann, bob):
        world.people.block(person.id, world.clock())
    for identity in (somebody(), somebody("2", "bob@example.org")):
        with pytest.raises(SignInRefused, match="blocked"):
            arrived(accounts(world), identity)


@pytest.mark.parametrize(("told", "name"), [("", "ann"), ("A\nn", "A n"), ("\x1b[31m", "ann")])
def test_a_name_that_cannot_be_shown_is_replaced(world: World, told: str, name: str) -> None:
    assert arrived(accounts(world), somebody(name=told)).name == name


def test_an_address_that_cannot_be_one_is_refused(world: World) -> None:
    joining = Joining(roles={"films": Role.UPLOADER})
    with pytest.raises(SignInRefused):
        arrived(accounts(world, joining), somebody(email="no address", groups=("films",)))


@pytest.mark.parametrize("is_proven", [True, False])
def test_who_comes_from_the_provider_takes_the_account_of_a_stranger_over(
    world: World, is_proven: bool
) -> None:
    """A manager may have made one with the address, and still know the password."""
    project, sessions = world.project("Wedding"), SessionRecords(world.database)
    sessions_of = Sessions(sessions, clock=world.clock, new_id=world.new_id)
    eve = world.person("ann@example.org", password_hash="known to Eve", is_proven=is_proven)
    world.join(eve, Role.MANAGER, project)
    sessions_of.begin(eve, "password", address="", agent="")
    by_eve = acting(world.context, project, by=f"person:{eve.id}")
    link = world.upload_links.make(by_eve, LinkTerms())
    with world.database.write() as connection:
        code = {"person_id": eve.id, "secret": "A", "last_step": 0, "created_at": world.clock()}
        connection.execute(insert(second_factors).values(code))
        connection.execute(insert(recovery_codes).values(person_id=eve.id, digest="B"))
    arrival = accounts(world).arrive(somebody())
    found = world.people.find(eve.id)
    assert arrival.person.id == eve.id
    assert found is not None
    assert found.is_proven
    assert (found.password_hash is not None) is is_proven
    assert (sessions_of.of_person(eve.id) != []) is is_proven
    assert (world.upload_links.get(project, link.id).closed_at is None) is is_proven
    with world.database.read() as connection:
        for table in (second_factors, recovery_codes):
            assert len(connection.execute(select(table)).all()) == is_proven
    assert arrival.ended == ({} if is_proven else {project: RevocationCounts(links_closed=1)})
