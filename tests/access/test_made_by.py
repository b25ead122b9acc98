"""What becomes of keys, links and webhooks when the role of their maker changes or ends."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from flask.testing import FlaskClient

from app.access import audit, webhooks
from app.access.audit import AuditAction, AuditFilter
from app.access.people import Person
from app.access.share_links import ShareTerms
from app.access.upload_links import LinkTerms
from app.access.webhooks import SUBSCRIBABLE
from app.core.access import Role
from app.core.errors import LinkClosed, NotAllowed
from tests.access.accounts import bearer
from tests.acting import acting
from tests.site import HTML, OTHER_PASSWORD, Site


def person(
    site: Site, role: Role | None, project: str, *, is_admin: bool = False
) -> tuple[Person, str]:
    """Somebody with that role, and how records name them as a maker."""
    ann = site.person("Ann", role, project=project, is_admin=is_admin)
    return ann, f"person:{ann.id}"


def new_key(site: Site, project: str, maker: str, role: Role = Role.MANAGER) -> str:
    ctx = acting(site.services.context, project, by=maker)
    return site.identity.keys.make(ctx, name="k", role=role)[1]


def role_with(site: Site, key: str) -> Role | None:
    """What whoever has the key may do."""
    caller = site.identity.keys.caller(key, fresh=True)
    return None if caller is None else caller.role


def test_a_key_does_no_more_than_whoever_made_it(site: Site) -> None:
    project = site.project()
    ann, maker = person(site, Role.MANAGER, project)
    person(site, Role.MANAGER, project)
    key, low = (new_key(site, project, maker, role) for role in (Role.MANAGER, Role.VIEWER))
    through_key = new_key(site, project, sender_of(site, key))
    by_shell = new_key(site, project, "")
    site.identity.projects.set_role(site.operator, project, ann.id, Role.UPLOADER)
    found = [role_with(site, each) for each in (key, through_key, low, by_shell)]
    assert found == [Role.UPLOADER, Role.UPLOADER, Role.VIEWER, Role.MANAGER]
    listed = {
        each.role for each in site.identity.keys.of_project(acting(site.services.context, project))
    }
    assert listed == {Role.UPLOADER, Role.VIEWER, Role.MANAGER}
    site.identity.projects.set_role(site.operator, project, ann.id, Role.EDITOR)
    assert role_with(site, key) is Role.EDITOR


@pytest.mark.parametrize("with_key", [False, True])
def test_who_has_just_lost_a_role_makes_nothing_there_any_more(site: Site, with_key: bool) -> None:
    """The server may have let a request in just before; it writes after its sender is gone."""
    here, there = site.project(), site.project()
    ann, maker = person(site, Role.MANAGER, here)
    person(site, Role.MANAGER, here)
    identity = site.identity
    identity.projects.add_member(site.operator, there, ann.email, Role.MANAGER)
    if with_key:
        maker = sender_of(site, new_key(site, here, maker))
    identity.projects.remove_member(site.operator, here, ann.id)
    video, by = site.video(project=here), partial(acting, site.services.context, by=maker)
    for make in (
        lambda: new_key(site, here, maker),
        lambda: identity.share_links.make(by(here), [video], ShareTerms()),
        lambda: identity.upload_links.make(by(here), LinkTerms()),
    ):
        with pytest.raises(NotAllowed):
            make()
    assert site.identity.keys.of_project(acting(site.services.context, here)) == []
    assert identity.share_links.of_project(here) == []
    assert identity.upload_links.of_project(by(here)) == []


def test_a_key_that_was_revoked_makes_nothing_any_more(site: Site) -> None:
    keys, project = site.identity.keys, site.project()
    key_id, _ = site.key(Role.MANAGER, project=project)
    keys.revoke(acting(site.services.context, project), key_id)
    with pytest.raises(NotAllowed):
        site.identity.upload_links.make(
            acting(site.services.context, project, by=f"key:{key_id}"), LinkTerms()
        )


def test_keys_of_an_administrator_work_as_long_as_they_are_one(site: Site) -> None:
    project = site.project()
    ann, maker = person(site, None, project, is_admin=True)
    key = new_key(site, project, maker)
    assert role_with(site, key) is Role.MANAGER
    _, viewer = person(site, Role.VIEWER, project, is_admin=True)
    assert role_with(site, new_key(site, project, viewer)) is Role.MANAGER
    site.identity.accounts.end_admin(site.operator, ann)
    assert role_with(site, key) is None
    listed = {
        each.role for each in site.identity.keys.of_project(acting(site.services.context, project))
    }
    assert listed == {Role.MANAGER}


def make_links(site: Site, project: str, maker: str) -> tuple[str, str]:
    """The codes of an upload link and of a share link."""
    identity, video = site.identity, site.video(project=project)
    share = identity.share_links.make(
        acting(site.services.context, project, by=maker), [video], ShareTerms()
    )
    upload = identity.upload_links.make(
        acting(site.services.context, project, by=maker), LinkTerms()
    )
    return upload.code, share.code


def are_open(site: Site, codes: tuple[str, str]) -> bool:
    """Whether both links let strangers in."""
    identity = site.identity
    identity.link_visitors.forget()
    found = []
    for opened in (
        lambda: identity.link_visitors.caller(codes[0]),
        lambda: identity.share_links.opened(codes[1]),
    ):
        try:
            opened()
            found.append(True)
        except LinkClosed:
            found.append(False)
    assert len(set(found)) == 1
    return found[0]


def test_keys_and_links_end_with_the_membership_of_their_maker_and_webhooks_stay(
    site: Site,
) -> None:
    here, there = site.project(), site.project()
    identity = site.identity
    ann, maker = person(site, Role.EDITOR, here)
    identity.projects.add_member(site.operator, there, ann.email, Role.EDITOR)
    _, other = person(site, Role.MANAGER, here)
    keys = [new_key(site, project, maker) for project in (here, there)]
    caller = site.identity.keys.caller(keys[0])
    assert caller is not None
    made = [make_links(site, here, by) for by in (maker, caller.sender)]
    elsewhere, of_other = make_links(site, there, maker), make_links(site, here, other)
    ctx = acting(site.services.context, here, by=maker)
    webhooks.make(ctx, url="https://hooks.example/", events=SUBSCRIBABLE)
    ended = identity.projects.remove_member(site.operator, here, ann.id)
    assert (ended.keys_revoked, ended.links_closed, ended.webhooks_kept) == (1, 4, 1)
    assert [are_open(site, codes) for codes in (*made, elsewhere, of_other)] == [
        *(False, False),
        *(True, True),
    ]
    assert [role_with(site, key) for key in keys] == [None, Role.EDITOR]
    assert len(webhooks.of_project(ctx)) == 1


def test_whoever_is_blocked_leaves_nothing_that_works(site: Site) -> None:
    identity, project = site.identity, site.project()
    ann, maker = person(site, Role.EDITOR, project)
    key, links = new_key(site, project, maker), make_links(site, project, maker)
    chief = site.client(site.person("Chief", is_admin=True))
    sent = {"data": {"change": "block"}, "headers": {"Accept": "text/html"}}
    assert chief.post(f"/people/{ann.id}", **sent).status_code == 303
    assert (role_with(site, key), are_open(site, links)) == (None, False)
    identity.accounts.unblock(site.operator, ann)
    assert (role_with(site, key), are_open(site, links)) == (None, False)
    wanted = AuditFilter(project_id=project, action=AuditAction.MEMBER_CHANGED)
    (entry,) = audit.page(site.services.context, wanted, limit=10, cursor=None).entries
    assert entry.details == {
        "email": ann.email,
        "change": "block",
        "keys_revoked": 1,
        "links_closed": 2,
        "invitations_withdrawn": 0,
        "webhooks_kept": 0,
    }


def invite(client: FlaskClient, project: str, **sent: Any) -> str:
    """The path of a link by which a ghost would join as a manager."""
    ghost = {"email": f"{secrets.token_hex(8)}@example.org", "role": "manager"}
    answer = client.post(f"/api/projects/{project}/members", json=ghost, **sent)
    assert answer.status_code == 202
    path: str = urlsplit(answer.get_json()["invitation"]).path
    return path


@pytest.mark.parametrize("with_key", [False, True])
def test_nobody_comes_back_by_an_invitation_of_their_own(site: Site, with_key: bool) -> None:
    project = site.project()
    ann, maker = person(site, Role.MANAGER, project)
    person(site, Role.MANAGER, project)
    signed_in = site.client(ann)
    if with_key:
        headers = bearer(new_key(site, project, maker))
        link = invite(site.client(), project, headers=headers)
    else:
        link = invite(signed_in, project)
    ended = site.identity.projects.remove_member(site.operator, project, ann.id)
    assert ended.invitations_withdrawn == 1
    answer = signed_in.post(link, data={"person": ann.id}, headers=HTML)
    assert answer.status_code == 410
    assert ann.id not in {each.person_id for each in site.identity.projects.members(project)}


def test_the_links_of_who_is_blocked_make_no_account_and_no_password(site: Site) -> None:
    project = site.project()
    ann, maker = person(site, Role.MANAGER, project, is_admin=True)
    chief = site.person("Chief", is_admin=True)
    link = invite(site.client(ann), project)
    reset = site.identity.invitations.to_reset(
        acting(site.services.context, project, by=maker), chief
    )
    site.identity.accounts.block(site.operator, ann)
    site.identity.accounts.unblock(site.operator, ann)
    fields = {"name": "Ghost", "password": OTHER_PASSWORD}
    for path in (link, f"/reset/{reset}"):
        assert site.client().post(path, data=fields, headers=HTML).status_code == 410


def test_an_invitation_gives_no_more_than_its_maker_may_give_now(site: Site) -> None:
    project, identity = site.project(), site.identity
    ann, _ = person(site, Role.MANAGER, project)
    person(site, Role.MANAGER, project)
    link = invite(site.client(ann), project)
    (waiting,) = identity.invitations.waiting(project)
    identity.projects.set_role(site.operator, project, ann.id, Role.EDITOR)
    assert site.client(ann).get(link, headers=HTML).status_code == 410
    bob = replace(site.person("Bob"), id="b" * 32, email="bob@elsewhere.example")
    with pytest.raises(LinkClosed):
        identity.invitations.join_by_address(waiting, bob)  # As if Ann had just lost the role.
    assert identity.invitations.waiting(project) == []
    identity.projects.set_role(site.operator, project, ann.id, Role.MANAGER)
    assert site.client(ann).get(link, headers=HTML).status_code == 200


def test_links_for_new_passwords_work_as_long_as_their_maker_administers(site: Site) -> None:
    identity = site.identity
    ann, maker = person(site, None, site.project(), is_admin=True)
    other = site.person("Other", is_admin=True)
    code = identity.invitations.to_reset(
        acting(site.services.context, site.project(), by=maker), other
    )
    identity.accounts.end_admin(site.operator, ann)
    with pytest.raises(LinkClosed):
        identity.invitations.choose_password(site.operator, code, OTHER_PASSWORD)


def test_managers_see_and_withdraw_the_invitations_that_wait(site: Site) -> None:
    here, there = site.project(), site.project()
    ann, _ = person(site, Role.MANAGER, here)
    bob, _ = person(site, Role.MANAGER, there)
    browser = site.browser(ann)
    link = invite(browser.client, here)
    (waiting,) = site.identity.invitations.waiting(here)
    assert str(waiting.email) in browser.get("/project").text
    withdraw = f"/project/invitations/{waiting.digest}/withdraw"
    site.browser(bob).post(withdraw)
    assert len(site.identity.invitations.waiting(here)) == 1, "it is not Bob's to withdraw"
    assert browser.post(withdraw).status_code == 303
    assert str(waiting.email) not in browser.get("/project").text
    assert site.browser().get(link).status_code == 410
    wanted = AuditFilter(project_id=here, action=AuditAction.INVITATION_REMOVED)
    (entry,) = audit.page(site.services.context, wanted, limit=10, cursor=None).entries
    assert entry.details == {"email": waiting.email, "role": "manager"}


def sender_of(site: Site, key: str) -> str:
    """How records name whoever makes something with that key."""
    caller = site.identity.keys.caller(key, fresh=True)
    assert caller is not None
    return caller.sender


def test_what_a_key_has_made_ends_with_the_key(site: Site) -> None:
    project = site.project()
    ann, maker = person(site, Role.MANAGER, project)
    first, other = (new_key(site, project, maker) for _ in "12")
    second = new_key(site, project, sender_of(site, first))
    third = new_key(site, project, sender_of(site, second))
    made = [make_links(site, project, sender_of(site, key)) for key in (first, third, other)]
    invite(site.client(), project, headers=bearer(second))
    keys = site.identity.keys.of_project(acting(site.services.context, project))
    (first_id,) = [key.id for key in keys if first.startswith(key.hint)]
    answer = site.client(ann).delete(f"/api/keys/{first_id}")
    assert answer.status_code == 204
    assert [role_with(site, key) for key in (first, second, third)] == [None] * 3
    assert role_with(site, other) is Role.MANAGER
    assert [are_open(site, codes) for codes in made] == [False, False, True]
    assert site.identity.invitations.waiting(project) == []
    wanted = AuditFilter(project_id=project, action=AuditAction.KEY_REVOKED)
    (entry,) = audit.page(site.services.context, wanted, limit=10, cursor=None).entries
    assert entry.details == {
        "name": "k",
        "keys_revoked": 2,
        "links_closed": 4,
        "invitations_withdrawn": 1,
        "webhooks_kept": 0,
    }


@pytest.mark.parametrize("hours", [None, 2])
def test_a_key_expires_no_later_than_that_with_which_it_was_made(
    site: Site, hours: float | None
) -> None:
    keys, now = site.identity.keys, datetime.now(UTC)
    _, headers = site.key(Role.MANAGER, lifetime=timedelta(hours=1))
    sent = {"name": "child", "role": "viewer", "expires": hours and hours * 3600}
    answer = site.client().post("/api/keys", json=sent, headers=headers)
    assert answer.status_code == 201
    caller = keys.caller(answer.get_json()["key"])
    assert caller is not None
    (child,) = [
        key
        for key in keys.of_project(acting(site.services.context, caller.project))
        if key.id == caller.id
    ]
    assert child.expires_at is not None
    assert child.expires_at < now + timedelta(hours=1.5)


def test_what_an_administrator_has_made_elsewhere_ends_when_they_are_none(site: Site) -> None:
    here, there = site.project(), site.project()
    ann, maker = person(site, Role.VIEWER, here, is_admin=True)
    inside, outside = make_links(site, here, maker), make_links(site, there, maker)
    chief = site.browser(site.person("Chief", is_admin=True))
    assert chief.post(f"/people/{ann.id}", {"change": "make_member"}).status_code == 303
    assert [are_open(site, codes) for codes in (inside, outside)] == [True, False]
    wanted = AuditFilter(project_id=there, action=AuditAction.MEMBER_CHANGED)
    (entry,) = audit.page(site.services.context, wanted, limit=10, cursor=None).entries
    assert (entry.details["change"], entry.details["links_closed"]) == ("make_member", 2)
