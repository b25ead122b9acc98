"""What one process remembers of people and keys, while another lets them in or shuts them out."""

from __future__ import annotations

import pytest

from app.core.access import Role
from tests.acting import acting
from tests.site import Browser, Site


@pytest.fixture(scope="module")
def other(site: Site) -> Site:
    """Another process of the server, in which nothing is forgotten."""
    return site.another_worker()


def who_is_remembered(site: Site, other: Site, role: Role, *, is_admin: bool = False) -> Browser:
    """A new person's browser, which the other process has seen."""
    browser = other.browser(site.person("Mal", role, is_admin=is_admin))
    assert browser.get("/").status_code == 200
    return browser


def test_a_blocked_administrator_does_not_unblock_themselves(site: Site, other: Site) -> None:
    site.person("Root", is_admin=True)
    browser = who_is_remembered(site, other, Role.VIEWER, is_admin=True)
    mal = site.people["Mal"]
    site.identity.accounts.block(site.operator, mal)
    assert browser.get("/people").status_code == 200, "it is remembered who this was"
    assert browser.post(f"/people/{mal.id}", {"change": "unblock"}).status_code == 401
    person = site.find(mal)
    assert person is not None
    assert person.is_blocked
    assert browser.get("/people").status_code == 303, "and then no longer"


def test_a_removed_manager_does_not_come_back(site: Site, other: Site) -> None:
    site.person("Ann", Role.MANAGER)
    browser = who_is_remembered(site, other, Role.MANAGER)
    mal = site.people["Mal"]
    site.identity.projects.remove_member(site.operator, "local", mal.id)
    assert browser.get("/project").status_code == 200
    fields = {"email": mal.email, "role": "manager"}
    assert browser.post("/project/members", fields).status_code == 403
    assert mal.id not in {each.person_id for each in site.identity.projects.members("local")}


def test_a_removed_editor_makes_no_link(site: Site, other: Site) -> None:
    browser = who_is_remembered(site, other, Role.EDITOR)
    site.identity.projects.remove_member(site.operator, "local", site.people["Mal"].id)
    assert browser.post("/links/upload", {"name": "Send"}).status_code == 403


def test_a_revoked_key_makes_no_other(site: Site, other: Site) -> None:
    key, headers = site.key(Role.MANAGER)
    client = other.client()
    assert client.get("/api/keys", headers=headers).status_code == 200
    site.identity.keys.revoke(acting(site.services.context, "local"), key)
    assert client.get("/api/keys", headers=headers).status_code == 200
    new = {"name": "another", "role": "manager"}
    assert client.post("/api/keys", headers=headers, json=new).status_code == 401


def test_who_was_just_let_in_is_not_refused_out_of_memory(site: Site, other: Site) -> None:
    browser = who_is_remembered(site, other, Role.EDITOR)
    project = site.project()
    assert browser.get(f"/api/videos?project={project}").status_code == 404
    site.join(site.people["Mal"], Role.VIEWER, project)
    assert browser.get(f"/api/videos?project={project}").status_code == 200
