"""The page of a project, without scripts."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.access import audit
from app.access.audit import AuditAction, AuditFilter
from app.access.keys import is_key
from app.core.access import EVERYTHING, LOCAL, Role
from tests.acting import acting
from tests.site import Site

HTML = {"Accept": "text/html"}


@pytest.fixture
def manager(site: Site) -> FlaskClient:
    return site.client(site.person("Ann", Role.MANAGER))


def page(client: FlaskClient, path: str = "/project") -> str:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 200
    return unescape(answer.text)


def post(client: FlaskClient, path: str, **fields: str) -> Any:
    return client.post(f"/project{path}", data=fields, headers=HTML)


def test_a_key_is_made_shown_once_and_revoked(site: Site, manager: FlaskClient) -> None:
    made = post(manager, "/keys", key_name="camera", key_role="uploader", expires="7776000")
    (key,) = [text for text in re.findall(r'value="(sluice_\w+)"', made.text) if is_key(text)]
    assert site.identity.keys.caller(key) is not None
    assert key not in page(manager, "/project/keys")
    assert "camera" in page(manager, "/project/keys")
    (revoke,) = re.findall(r'action="/project(/keys/\w+/revoke)"', page(manager, "/project/keys"))
    assert post(manager, revoke).status_code == 303
    assert site.identity.keys.caller(key) is None
    assert "camera" not in page(manager, "/project/keys")


def test_what_cannot_be_used_is_said_beside_its_field(manager: FlaskClient) -> None:
    refused = post(manager, "/keys", key_name=" ", key_role="uploader")
    assert refused.status_code == 400
    assert 'aria-invalid="true"' in refused.text
    refused = post(manager, "/members", email="nobody", role="viewer")
    assert "Enter an e-mail address" in refused.text


def test_members_come_change_and_go(site: Site) -> None:
    project = site.project("Films")
    manager = site.client(site.person("Ann", Role.MANAGER, project=project))
    site.client(site.person("Bob"))
    bob = site.people["Bob"]
    invited = post(manager, "/members", email=bob.email, role="viewer")
    (link,) = set(re.findall(r"/join/[\w-]+", invited.text))
    site.client(bob).post(link, data={"person": bob.id})
    assert bob.email in page(manager)
    post(manager, f"/members/{bob.id}", role="editor")
    roles = {m.email: m.role for m in site.identity.projects.members(project)}
    assert roles[bob.email] is Role.EDITOR
    last = post(manager, f"/members/{site.people['Ann'].id}", role="none")
    assert last.status_code == 409
    assert "needs a manager" in last.text
    assert "blocked" not in page(manager)
    site.identity.accounts.block(site.operator, bob)
    assert "blocked" in page(manager)
    post(manager, f"/members/{bob.id}", role="none")
    assert bob.email not in page(manager)
    invited = post(manager, "/members", email="eve@example.org", role="viewer")
    assert "/join/" in invited.text


@pytest.mark.parametrize(("role", "count"), [(Role.EDITOR, 0), (Role.MANAGER, 1)])
def test_a_person_with_one_project_sees_the_word_in_the_bar_alone(
    site: Site, role: Role, count: int
) -> None:
    ann = site.client(site.person("Ann", role))
    for path in ("/", "/account"):
        shown = re.sub(r"<[^>]*>", "", page(ann, path))
        assert shown.lower().count("project") == count


def test_a_person_with_several_chooses(site: Site) -> None:
    project = site.project("Weather")
    ann = site.client(site.person("Ann", Role.MANAGER))
    new = {"email": site.people["Ann"].email, "role": "uploader"}
    chief = site.client(site.person("Bob", is_admin=True))
    assert chief.post(f"/api/projects/{project}/members", json=new).status_code == 201
    assert 'data-project="local"' in page(ann, "/")
    assert "Weather" in page(ann, "/")
    assert post(ann, "/choose", project="0" * 32).status_code == 404
    assert post(ann, "/choose", project=project).status_code == 303
    assert f'data-upload-url="/upload?project={project}"' in page(ann, "/")
    created = ann.post("/api/uploads?project=local", json={"name": "a.mp4", "size": 3})
    listed = ann.get("/api/uploads?project=local").get_json()["uploads"]
    assert created.get_json()["id"] in {upload["id"] for upload in listed}
    assert ann.get("/api/uploads").get_json()["uploads"] == []


def test_every_page_of_a_project_stays_in_it(site: Site) -> None:
    here, there = site.project("Here"), site.project("There")
    ann = site.person("Ann", Role.MANAGER, project=here)
    site.join(ann, Role.MANAGER, there)
    client = site.client(ann)
    pages = ("/", "/links", "/links/upload", "/webhooks", "/project", "/audit")
    for path in pages:
        shown = page(client, f"{path}?project={there}")
        urls = re.findall(r'(?:href|action)="(/(?:(?:links|webhooks|audit|project)[^"]*)?)"', shown)
        urls += re.findall(r'(?:href|action)="(/[?#][^"]*)"', shown)
        assert all(f"project={there}" in url for url in urls if url != "/project/choose"), urls
        assert len(urls) > 3
    made = client.post(f"/links/upload?project={there}", data={"name": "Send"}, headers=HTML)
    assert made.location.endswith(f"?project={there}")
    links = site.identity.upload_links
    assert [
        len(links.of_project(acting(site.services.context, each))) for each in (there, here)
    ] == [1, 0]
    left = post(client, f"/members/{ann.id}?project={there}", role="none")
    assert left.status_code == 409


def test_administrators_find_a_way_out_of_every_page_of_a_project_they_are_not_in(
    site: Site,
) -> None:
    chief = site.client(site.person("Chief", Role.VIEWER, is_admin=True))
    other = site.project("Other")
    links = set()
    for path in ("/project", "/webhooks", "/audit"):
        links |= set(
            re.findall(r'<a\b[^>]*href="(/[^"]*)"', page(chief, f"{path}?project={other}"))
        )
    assert {"/", f"/project?project={other}", f"/webhooks?project={other}"} <= links
    assert [link for link in links if chief.get(link, headers=HTML).status_code != 200] == []


def test_an_administrator_who_is_a_viewer_manages_the_project(site: Site) -> None:
    project = site.project("Viewed")
    chief = site.client(site.person("Chief", Role.VIEWER, project=project, is_admin=True))
    assert ">Project</a>" in page(chief, "/")
    for path in ("/project", f"/project?project={project}", "/webhooks"):
        page(chief, path)
    made = post(chief, "/keys", key_name="camera", key_role="manager")
    assert is_key(re.findall(r'value="(sluice_\w+)"', made.text)[0])
    shown = chief.get(f"/api/projects/{project}").get_json()
    assert shown["role"] == "viewer"


def test_administrators_make_rename_and_delete_projects(site: Site) -> None:
    chief = site.client(site.person("Chief", Role.VIEWER, is_admin=True))
    assert chief.post("/projects", data={"name": " "}, headers=HTML).status_code == 400
    assert chief.post("/projects", data={"name": "Radio"}, headers=HTML).status_code == 303
    shown = page(chief, "/projects?done=made")
    assert "The project is made" in shown
    (radio,) = [each for each in site.identity.projects.of(LOCAL) if each.name == "Radio"]
    rename = f"/projects/{radio.id}/name"
    refused = chief.post(rename, data={"new_name": ""}, headers=HTML)
    assert (refused.status_code, "Enter a name" in refused.text) == (400, True)
    others = chief.post(f"/projects/{site.project()}/name", data={"new_name": ""}, headers=HTML)
    assert others.text.count("you: ") == 2, "to manage all projects makes nobody a member"
    assert chief.post(rename, data={"new_name": "Wireless"}, headers=HTML).status_code == 303
    assert "Delete Wireless" in page(chief, "/projects")
    video = site.video(project=radio.id)
    assert "Delete Wireless" not in page(chief, "/projects")
    used = chief.post(f"/projects/{radio.id}/remove", headers=HTML)
    assert (used.status_code, "delete them first" in used.text) == (409, True)
    site.services.library.delete(EVERYTHING, video.id)
    site.key(Role.VIEWER, project=radio.id)
    site.upload_link(radio.id)
    assert chief.post(f"/projects/{radio.id}/remove", headers=HTML).status_code == 303
    wanted = AuditFilter(project_id=radio.id, action=AuditAction.PROJECT_REMOVED)
    (entry,) = audit.page(site.services.context, wanted, limit=5, cursor=None).entries
    ended = {"members": 1, "keys": 1, "links": 1, "webhooks": 0}
    assert entry.details == {"name": "Wireless", **ended}
    assert "Wireless" not in page(chief, "/projects")
    assert site.client(site.person("Bob", Role.MANAGER)).get("/projects").status_code == 403


def test_a_person_in_no_project_is_told_whom_to_ask(site: Site) -> None:
    chief, eve = site.person("Chief", is_admin=True), site.person("Eve")
    for path in ("/", "/links", "/watch/" + "0" * 32):
        answer = site.client(eve).get(path, headers=HTML)
        assert answer.status_code == 403
        for words in (eve.email, chief.email, "No project yet", "Sign out"):
            assert words in answer.text
        assert 'href="/projects"' not in answer.text
    assert 'href="/projects"' in site.client(chief).get("/", headers=HTML).text
    refused = site.client(eve).get("/api/videos")
    assert refused.get_json()["code"] == "no_project"
    assert "not allowed" in site.client(eve).get("/people", headers=HTML).text
