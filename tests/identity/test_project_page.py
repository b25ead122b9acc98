"""The page of a project, without scripts."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.domain.access import Role
from app.identity.key_format import is_key
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
    assert key not in page(manager)
    assert "camera" in page(manager)
    (revoke,) = re.findall(r'action="/project(/keys/\w+/revoke\?[^"]*)"', page(manager))
    assert post(manager, revoke).status_code == 303
    assert site.identity.keys.caller(key) is None
    assert "camera" not in page(manager)


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
    post(manager, "/members", email=bob.email, role="viewer")
    assert bob.email in page(manager)
    post(manager, f"/members/{bob.id}", role="editor")
    roles = {m.email: m.role for m in site.identity.projects.members(project)}
    assert roles[bob.email] is Role.EDITOR
    last = post(manager, f"/members/{site.people['Ann'].id}", role="none")
    assert last.status_code == 409
    assert "needs a manager" in last.text
    post(manager, f"/members/{bob.id}", role="none")
    assert bob.email not in page(manager)
    invited = post(manager, "/members", email="eve@example.org", role="viewer")
    assert "/join/" in invited.text


def test_a_person_with_one_project_never_sees_the_word(site: Site) -> None:
    ann = site.client(site.person("Ann", Role.MANAGER))
    shown = re.sub(r"<[^>]*>", "", page(ann, "/") + page(ann, "/account"))
    assert "project" not in shown.lower()
    assert "Members and keys" in shown


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
