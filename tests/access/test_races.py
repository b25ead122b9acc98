"""Requests of several nodes that change the same people, links or webhooks at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Barrier

import pytest
from pyotp import TOTP
from sqlalchemy import select

from app.access import webhooks
from app.access.attempts import AttemptRecords
from app.access.invitations import Invitation, Invitations, Purpose
from app.access.passkeys import MAX_PASSKEYS, Passkey
from app.access.people import administrators, give_to_owner, roles_now
from app.access.projects import Project
from app.access.second_factor import RECOVERY_CODES, SecondFactors
from app.access.signing import Browser
from app.access.upload_links import LinkTerms, UploadLink, keep_name
from app.access.webhooks import MAX_WEBHOOKS, SUBSCRIBABLE, Webhook
from app.core.access import FIRST_PROJECT, Caller, Role
from app.core.errors import (
    EntryNotFound,
    InvalidField,
    InvalidRequest,
    LastAdministrator,
    LastManager,
    LinkClosed,
    NotAllowed,
    SignInRefused,
    UploadError,
    WrongCredentials,
)
from app.core.jobs import Job
from app.core.upload import Upload
from app.db.engine import Database
from app.db.tables import link_senders
from tests.access.authenticator import Authenticator
from tests.access.webhook_world import URL, WebhookWorld
from tests.access.world import CHEAP, GOOD_PASSWORD, World
from tests.acting import acting
from tests.postgresql import ON_BOTH_DATABASES

pytestmark = ON_BOTH_DATABASES

ROUNDS = 5
"""One alone often has the requests run one after another."""


def at_once(*requests: Callable[[], object]) -> list[object]:
    """What each of them returns, or the error of the domain that it raises."""
    together = Barrier(len(requests))

    def run(request: Callable[[], object]) -> object:
        together.wait()
        try:
            return request()
        except UploadError as error:
            return error

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(run, requests))


def kinds(outcomes: Sequence[object]) -> set[type]:
    return {type(outcome) for outcome in outcomes}


def invitations_of(world: World) -> Invitations:
    return world.identity.invitations


def inviting(world: World, email: str, project: str) -> Callable[[], str]:
    """A request that invites to a project, and returns the code."""
    to_join = invitations_of(world).to_join
    return partial(to_join, world.operator, email, project_id=project, role=Role.VIEWER)


def test_failures_that_are_counted_and_forgotten_at_once_do_not_wait_for_each_other(
    world: World,
) -> None:
    records = AttemptRecords(world.database)
    first, second = ["b:1", "c:1"], ["c:1", "d:1", "b:1", "a:1"]
    for _ in range(4 * ROUNDS):
        records.failed(second[::-1], world.clock.now)
        count = partial(records.failed, second, world.clock.now)
        later = world.clock.now + timedelta(days=1)
        forget = [partial(records.forget, each) for each in (first, second, second[::-1])]
        outcomes = at_once(count, *forget, count, partial(records.remove_old, later))
        assert not [each for each in outcomes if isinstance(each, UploadError)]


def test_a_visit_and_what_ends_all_sessions_do_not_wait_for_each_other(world: World) -> None:
    person, sessions = world.person(), world.identity.sessions

    def give() -> None:
        with world.database.write() as connection:
            give_to_owner(connection, person.id)

    for _ in range(4 * ROUNDS):
        cookie = sessions.begin(world.operator, person, "password", agent="")
        world.clock.turn(hours=1)
        outcomes = at_once(partial(sessions.caller, cookie, fresh=True), give)
        assert kinds(outcomes) <= {Caller, type(None)}


@pytest.mark.parametrize("change", ["password", "block", "remove"])
def test_no_session_outlives_what_ends_all_sessions_of_a_person(world: World, change: str) -> None:
    world.person("root@example.org", is_admin=True)
    sessions, accounts = world.identity.sessions, world.accounts
    for number in range(2 * ROUNDS):
        ann = world.person(f"{number}@example.org", password_hash="old")
        changes: dict[str, Callable[[], object]] = {
            "password": partial(accounts.change_password, world.operator, ann, GOOD_PASSWORD),
            "block": partial(accounts.block, world.operator, ann),
            "remove": partial(accounts.delete, world.operator, ann),
        }
        begin = partial(sessions.begin, world.operator, ann, "password", agent="")
        begun, changed = at_once(begin, changes[change])
        assert isinstance(begun, NotAllowed | WrongCredentials | str)
        assert not isinstance(changed, Exception)
        assert sessions.of_person(ann.id) == []


def test_of_passwords_that_are_chosen_at_once_one_is_kept(world: World) -> None:
    for number in range(ROUNDS):
        ann = world.person(f"{number}@example.org", password_hash="old")
        passwords = [f"{number} {GOOD_PASSWORD}" for number in range(3)]
        change = partial(world.accounts.change_password, world.operator, ann)
        outcomes = at_once(*[partial(change, password) for password in passwords])
        (kept,) = [each for each, outcome in zip(passwords, outcomes, strict=True) if not outcome]
        assert kinds(outcomes) == {type(None), InvalidField}
        found = world.find(ann)
        assert found is not None
        assert found.password_hash is not None
        assert CHEAP.verify(found.password_hash, kept)


def test_of_recovery_codes_that_are_made_at_once_those_of_one_work(
    world: World, factors: SecondFactors
) -> None:
    ann = world.person()
    for _ in range(ROUNDS):
        made = at_once(*[partial(factors.renew_recovery_codes, world.operator, ann)] * 3)
        assert kinds(made) == {list}
        assert factors.recovery_codes_left(ann.id) == RECOVERY_CODES


def test_of_set_ups_that_end_at_once_one_counts(world: World, factors: SecondFactors) -> None:
    for number in range(ROUNDS):
        ann = world.person(f"{number}@example.org")
        ctx = world.acting_as(ann)
        set_ups = [factors.begin(ctx, ann) for _ in range(3)]
        codes = [TOTP(each.secret).at(world.clock()) for each in set_ups]
        done = at_once(
            *[partial(factors.add, ctx, ann, *each) for each in zip(set_ups, codes, strict=True)]
        )
        assert kinds(done) == {list}
        assert factors.recovery_codes_left(ann.id) == RECOVERY_CODES


def test_a_second_factor_is_set_up_while_the_account_is_deleted(
    world: World, factors: SecondFactors
) -> None:
    world.person("root@example.org", is_admin=True)
    for number in range(2 * ROUNDS):
        ann = world.person(f"{number}@example.org")
        ctx = world.acting_as(ann)
        set_up = factors.begin(ctx, ann)
        code = TOTP(set_up.secret).at(world.clock())
        done, removed = at_once(
            partial(factors.add, ctx, ann, set_up, code),
            partial(world.accounts.delete, world.operator, ann),
        )
        assert isinstance(done, list | SignInRefused)
        assert removed is None
        assert factors.people() == set()


def test_a_webhook_is_sent_events_by_one_worker(database: Database) -> None:
    world = WebhookWorld(database)
    webhook = world.webhook()
    for _ in range(ROUNDS):
        world.video()
        at_once(*[world.look] * 8)  # On several nodes.
        claims = at_once(*[partial(world.claim_job, name) for name in "abcdefgh"])
        (job,) = [each for each in claims if each is not None]
        assert isinstance(job, Job)
        world.succeed(world.begun(webhook, job))
        assert world.jobs.finish(job, world.now)


def test_a_webhook_that_is_removed_keeps_no_upload_from_completion(database: Database) -> None:
    world = WebhookWorld(database)
    for _ in range(ROUNDS):
        webhook = world.webhook()
        remove = partial(webhooks.remove, world.acting(), webhook.id)
        completed, _ = at_once(world.video, remove)
        assert isinstance(completed, Upload)


def test_of_invitations_that_are_made_at_once_one_works(world: World) -> None:
    at_once(*[inviting(world, "eve@example.org", FIRST_PROJECT) for _ in range(8)])
    assert len(invitations_of(world).waiting()) == 1


def test_people_are_invited_while_their_project_is_removed(world: World) -> None:
    all_projects = world.identity.projects
    for _ in range(ROUNDS):
        project = world.project(world.new_id())
        requests = [inviting(world, f"{number}@example.org", project) for number in range(6)]
        removed, *added = at_once(partial(all_projects.remove, world.operator, project), *requests)
        assert isinstance(removed, Project)
        assert kinds(added) <= {str, EntryNotFound}
    with pytest.raises(EntryNotFound):
        requests[0]()


def test_who_joins_in_two_ways_at_once_does_so_once(world: World) -> None:
    invitations = invitations_of(world)
    for number in range(ROUNDS):
        email = f"{number}@example.org"
        code = inviting(world, email, FIRST_PROJECT)()
        wanted = invitations.find(code, Purpose.JOIN)
        eve = world.person(f"eve{number}@example.org")
        bob = replace(eve, id=world.new_id(), email=email)
        outcomes = at_once(
            partial(invitations.accept, world.operator, code, eve),
            partial(invitations.join_by_address, wanted, bob),
        )
        assert LinkClosed in kinds(outcomes)
        assert len(roles_now(world.context, eve.id)) + len(roles_now(world.context, bob.id)) == 1


def test_a_project_has_no_more_webhooks_than_it_may(database: Database) -> None:
    world = WebhookWorld(database)
    make = partial(webhooks.make, world.acting(), url=URL, events=SUBSCRIBABLE)
    made = at_once(*[make for _ in range(MAX_WEBHOOKS + 5)])
    assert kinds(made) == {Webhook, InvalidRequest}
    assert len(webhooks.of_project(world.acting())) == MAX_WEBHOOKS


def test_a_person_has_no_more_passkeys_than_they_may(world: World) -> None:
    passkeys = world.identity.passkeys
    assert passkeys is not None
    ann, browser = world.person(), Browser("https://videos.example", "mark")

    def register() -> Passkey:
        options, token = passkeys.begin_registration(ann, browser)
        made = Authenticator(browser.origin, browser.host).create(dict(options))
        return passkeys.register(world.acting_as(ann), browser, made, token, name="Phone")

    outcomes = at_once(*[register] * (MAX_PASSKEYS + 4))
    assert len(passkeys.of_person(ann.id)) == MAX_PASSKEYS
    assert kinds(outcomes) == {Passkey, InvalidRequest}


def test_a_visitor_who_says_two_names_at_once_has_one(world: World) -> None:
    link = world.upload_links.make(acting(world.context, FIRST_PROJECT), LinkTerms())

    def name(name: str) -> None:
        with world.database.write() as connection:
            keep_name(connection, link.id, "v", name=name, now=world.clock())

    at_once(*[partial(name, each) for each in "abcdefgh"])
    name("the last one")
    with world.database.read() as connection:
        assert connection.scalars(select(link_senders.c.name)).all() == ["the last one"]


def test_one_administrator_and_one_manager_remain(world: World) -> None:
    projects, accounts = world.identity.projects, world.accounts
    for number in range(ROUNDS):
        people = [world.person(f"{number}{each}@example.org", is_admin=True) for each in "abc"]
        project = world.project(str(number))
        for person in people:
            world.join(person, Role.MANAGER, project)
        remove = partial(projects.remove_member, world.operator, project)
        left = at_once(*[partial(remove, each.id) for each in people])
        assert LastManager in kinds(left)
        end_admin = partial(accounts.end_admin, world.operator)
        ended = at_once(*[partial(end_admin, each) for each in administrators(world.context)])
        assert LastAdministrator in kinds(ended)


@pytest.mark.parametrize("end", ["block", "remove", "revoke", "delete project"])
def test_nothing_made_with_a_key_outlives_what_lets_it(world: World, end: str) -> None:
    keys, projects = world.identity.keys, world.identity.projects
    links, invitations = world.upload_links, invitations_of(world)
    world.person("root@example.org", is_admin=True)
    for number in range(ROUNDS):
        project, ann = world.project("News"), world.person(f"{number}@example.org")
        world.join(ann, Role.MANAGER, project)
        world.join(world.person(f"{number}b@example.org"), Role.MANAGER, project)
        in_project = partial(acting, world.context, project)
        key, _ = keys.make(in_project(by=f"person:{ann.id}"), name="k", role=Role.VIEWER)
        maker = f"key:{key.id}"
        by_key, email = in_project(by=maker), f"{number}new@example.org"
        code = invitations.to_join(by_key, email, project_id=project, role=Role.VIEWER)
        eve = world.person(f"{number}eve@example.org")
        now = world.clock()
        ends: dict[str, Callable[[], object]] = {
            "block": partial(world.accounts.block, world.operator, ann),
            "remove": partial(projects.remove_member, world.operator, project, ann.id),
            "revoke": partial(keys.revoke, in_project(), key.id),
            "delete project": partial(projects.remove, world.operator, project),
        }
        outcomes = at_once(
            ends[end],
            partial(keys.make, in_project(by=maker), name="k", role=Role.VIEWER),
            partial(links.make, in_project(by=maker), LinkTerms()),
            partial(invitations.accept, world.operator, code, eve),
        )
        assert not isinstance(outcomes[0], Exception)
        assert kinds(outcomes[1:]) <= {Invitation, tuple, UploadLink, NotAllowed, LinkClosed}
        assert not any(each.works(now) for each in keys.of_project(in_project()))
        assert all(each.closed_at is not None for each in links.of_project(in_project()))
