"""Whose account somebody gets who comes from the OpenID provider."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, select

from app.access import audit
from app.access.audit import AuditAction, AuditEntry, AuditFilter
from app.access.openid import Joining, OpenId
from app.access.openid_provider import ProviderIdentity
from app.access.people import Person, all_people, roles_of
from app.access.upload_links import LinkTerms
from app.core.access import FIRST_PROJECT, Role
from app.core.errors import SignInRefused
from app.db.tables import recovery_codes, second_factors
from tests.access.world import World
from tests.acting import acting

ISSUER = "https://provider.example"
OPEN_TO_EXAMPLE = Joining(roles={"@example.org": Role.UPLOADER, "films": Role.UPLOADER})


def accounts(world: World, joining: Joining = OPEN_TO_EXAMPLE) -> OpenId:
    join = tuple(joining.roles.items())
    found = world.new_process(oidc_issuer=ISSUER, oidc_client_id="sluice", oidc_join=join).openid
    assert found is not None
    return found


def identity_of(
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


def noted(world: World, person: Person) -> list[AuditEntry]:
    """What the audit log says of what the person has done, the oldest first."""
    found = list(audit.every(world.context, AuditFilter(actor=f"person:{person.id}")))
    return found[::-1]


def roles(world: World, person_id: str) -> dict[str, Role]:
    with world.database.read() as connection:
        return dict(roles_of(connection, person_id))


def test_a_verified_address_ties_the_person_who_has_it(world: World) -> None:
    ann = world.person("ann@example.org")
    assert accounts(world).sign_in(world.operator, identity_of()) == ann
    changed = identity_of(email="other@elsewhere.example", is_verified=False)
    assert accounts(world).sign_in(world.operator, changed) == ann


def test_an_unverified_address_ties_and_makes_nobody(world: World) -> None:
    world.person("ann@example.org")
    for email in ("ann@example.org", "new@example.org"):
        with pytest.raises(SignInRefused, match="not verified"):
            accounts(world).sign_in(
                world.operator, identity_of(email=email, is_verified=False, groups=("films",))
            )


def test_the_first_time_is_told_apart(world: World) -> None:
    world.person("ann@example.org")
    for subject, email in (("1", "ann@example.org"), ("2", "new@example.org")):
        for _ in range(2):
            person = accounts(world).sign_in(world.operator, identity_of(subject, email))
        new = [AuditAction.PERSON_ADDED, AuditAction.MEMBER_ADDED] if subject == "2" else []
        actions = [entry.action for entry in noted(world, person)]
        assert actions == [*new, AuditAction.PROVIDER_LINKED]


def test_an_address_ties_once(world: World) -> None:
    world.person("ann@example.org")
    accounts(world).sign_in(world.operator, identity_of("1"))
    with pytest.raises(SignInRefused, match="another account"):
        accounts(world).sign_in(world.operator, identity_of("2"))


def test_who_has_an_address_of_the_domain_joins(world: World) -> None:
    person = accounts(world).sign_in(world.operator, identity_of())
    assert (person.email, person.name, person.is_admin) == ("ann@example.org", "Ann", False)
    assert roles(world, person.id) == {FIRST_PROJECT: Role.UPLOADER}
    assert accounts(world).sign_in(world.operator, identity_of()) == person


def test_members_of_a_group_join_with_the_highest_role_that_is_set(world: World) -> None:
    joining = Joining(roles={"@example.org": Role.VIEWER, "films": Role.EDITOR, "a": Role.VIEWER})
    for number, (groups, role) in enumerate(
        [(("staff",), Role.VIEWER), (("a", "films"), Role.EDITOR)]
    ):
        identity = identity_of(str(number), f"{number}@example.org", groups=groups)
        person = accounts(world, joining).sign_in(world.operator, identity)
        assert roles(world, person.id) == {FIRST_PROJECT: role}


@pytest.mark.parametrize(
    "email", ["a@elsewhere.example", "a@sub.example.org", "a@notexample.org", "a@example.org.evil"]
)
def test_others_do_not_join(world: World, email: str) -> None:
    with pytest.raises(SignInRefused, match="not invited"):
        accounts(world).sign_in(world.operator, identity_of(email=email, groups=("others",)))
    assert all_people(world.context) == []


def test_nobody_joins_where_nothing_is_set(world: World) -> None:
    with pytest.raises(SignInRefused, match="not invited"):
        accounts(world, Joining()).sign_in(
            world.operator, identity_of(email="ann@example.org", groups=("films",))
        )


def test_who_is_invited_joins_the_project_of_the_invitation(world: World) -> None:
    project, invitations = world.project("Wedding"), world.identity.invitations
    invitations.to_join(world.operator, "bob@x.example", project_id=project, role=Role.EDITOR)
    world.clock.turn(days=8)  # Bob's has expired.
    invitations.to_join(world.operator, "ann@x.example", project_id=project, role=Role.EDITOR)
    ann = accounts(world, Joining()).sign_in(world.operator, identity_of(email="ann@x.example"))
    assert roles(world, ann.id) == {project: Role.EDITOR}
    (joined,) = [each for each in noted(world, ann) if each.action is AuditAction.MEMBER_ADDED]
    assert (joined.project_id, joined.details["role"]) == (project, Role.EDITOR)
    assert invitations.waiting() == []
    with pytest.raises(SignInRefused, match="not invited"):
        accounts(world, Joining()).sign_in(world.operator, identity_of("2", "bob@x.example"))


def test_blocked_people_do_not_get_in(world: World) -> None:
    ann = world.person("ann@example.org")
    accounts(world).sign_in(world.operator, identity_of())
    bob = world.person("bob@example.org")
    for person in (ann, bob):
        world.accounts.block(world.operator, person)
    for identity in (identity_of(), identity_of("2", "bob@example.org")):
        with pytest.raises(SignInRefused, match="blocked"):
            accounts(world).sign_in(world.operator, identity)


@pytest.mark.parametrize(("told", "name"), [("", "ann"), ("A\nn", "A n"), ("\x1b[31m", "ann")])
def test_a_name_that_cannot_be_shown_is_replaced(world: World, told: str, name: str) -> None:
    assert accounts(world).sign_in(world.operator, identity_of(name=told)).name == name


def test_an_address_that_cannot_be_one_is_refused(world: World) -> None:
    joining = Joining(roles={"films": Role.UPLOADER})
    with pytest.raises(SignInRefused):
        accounts(world, joining).sign_in(
            world.operator, identity_of(email="no address", groups=("films",))
        )


def test_a_group_that_looks_like_a_domain_is_none(world: World) -> None:
    joining = Joining(roles={"@example.org": Role.EDITOR})
    stranger = identity_of(email="eve@elsewhere.example", groups=("@example.org",))
    with pytest.raises(SignInRefused):
        accounts(world, joining).sign_in(world.operator, stranger)


@pytest.mark.parametrize("is_proven", [True, False])
def test_who_comes_from_the_provider_takes_the_account_of_a_stranger_over(
    world: World, is_proven: bool
) -> None:
    """A manager may have made one with the address, and still know the password."""
    project, sessions = world.project("Wedding"), world.identity.sessions
    eve = world.person("ann@example.org", password_hash="known to Eve", is_proven=is_proven)
    world.join(eve, Role.MANAGER, project)
    sessions.begin(world.operator, eve, "password", agent="")
    by_eve = acting(world.context, project, by=f"person:{eve.id}")
    link = world.upload_links.make(by_eve, LinkTerms())
    with world.database.write() as connection:
        code = {"person_id": eve.id, "secret": "A", "last_step": 0, "created_at": world.clock()}
        connection.execute(insert(second_factors).values(code))
        connection.execute(insert(recovery_codes).values(person_id=eve.id, digest="B"))
    person = accounts(world).sign_in(world.operator, identity_of())
    found = world.find(eve)
    assert person.id == eve.id
    assert found is not None
    assert found.is_proven
    assert (found.password_hash is not None) is is_proven
    assert (sessions.of_person(eve.id) != []) is is_proven
    assert (world.upload_links.get(project, link.id).closed_at is None) is is_proven
    with world.database.read() as connection:
        for table in (second_factors, recovery_codes):
            assert len(connection.execute(select(table)).all()) == is_proven
    ended = [each for each in noted(world, eve) if each.action is AuditAction.MEMBER_CHANGED]
    assert [each.project_id for each in ended] == ([] if is_proven else [project])
    assert all(each.details["links_closed"] == 1 for each in ended)
