"""Projects and their members over JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.domain.access import FIRST_PROJECT, Role
from tests.identity.office import Office, new_office

PROJECTS = "/api/projects"


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with new_office(tmp_path_factory.mktemp("office")) as office:
        yield office


@pytest.fixture
def news(office: Office) -> str:
    """A new project."""
    return office.project()


def members_url(project: str, name: str = "", office: Office | None = None) -> str:
    url = f"{PROJECTS}/{project}/members"
    return f"{url}/{office.people[name].id}" if office else url


def names(client: FlaskClient, **request: Any) -> list[str]:
    answer = client.get(PROJECTS, **request)
    assert answer.status_code == 200
    return [project["name"] for project in answer.get_json()["projects"]]


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.get_json()["code"]


def test_an_administrator_makes_renames_and_deletes_projects(office: Office) -> None:
    chief = office.hire("Ann", is_admin=True)
    made = chief.post(PROJECTS, json={"name": " Weather "})
    assert made.status_code == 201
    assert made.get_json()["role"] == "manager"
    assert "Weather" in names(chief)
    url = f"{PROJECTS}/{made.get_json()['id']}"
    assert chief.get(f"{url}/members").get_json()["members"][0]["role"] == "manager"
    assert chief.patch(url, json={"name": "Rain"}).get_json()["name"] == "Rain"
    assert chief.delete(url).status_code == 204
    assert not {"Weather", "Rain"} & set(names(chief))
    assert refusal(chief.get(f"{url}/members")) == (404, "entry_not_found")


def test_a_project_with_videos_or_uploads_is_not_deleted(office: Office) -> None:
    chief = office.hire("Ann", is_admin=True)
    project = chief.post(PROJECTS, json={"name": "News"}).get_json()["id"]
    inside = {"query_string": {"project": project}}
    new = {"name": "a.mp4", "size": 3}
    upload = chief.post("/api/uploads", json=new, **inside).get_json()["id"]
    assert refusal(chief.delete(f"{PROJECTS}/{project}")) == (409, "project_in_use")
    assert chief.delete(f"/api/uploads/{upload}").status_code == 204
    assert chief.delete(f"{PROJECTS}/{project}").status_code == 204
    assert refusal(chief.delete(f"{PROJECTS}/{FIRST_PROJECT}")) == (409, "project_in_use")


def test_others_see_their_own_projects_and_make_none(office: Office, news: str) -> None:
    manager, nobody = office.hire("Ann", Role.MANAGER), office.app.test_client()
    for client, request in (
        (manager, {}),
        (nobody, office.key(Role.VIEWER)),
        (nobody, office.key(Role.MANAGER)),
    ):
        assert names(client, **request) == ["Videos"]
        made = client.post(PROJECTS, json={"name": "News"}, **request)
        assert refusal(made) == (403, "not_allowed")
        assert refusal(client.get(members_url(news), **request)) == (404, "entry_not_found")
    assert refusal(nobody.get(members_url(news))) == (401, "not_signed_in")


def test_a_name_is_one_line(office: Office) -> None:
    chief = office.hire("Ann", is_admin=True)
    for name in ("", "  ", "x" * 101, "two\x00lines"):
        assert refusal(chief.post(PROJECTS, json={"name": name})) == (400, "invalid_field")


def test_a_manager_lets_others_in_and_out(office: Office, news: str) -> None:
    manager, bob = office.hire("Ann", Role.MANAGER, project=news), office.hire("Bob")
    assert bob.get("/api/videos").status_code == 403
    new = {"email": f" {office.people['Bob'].email.title()} ", "role": "uploader"}
    added = manager.post(members_url(news), json=new)
    assert (added.status_code, added.get_json()["name"]) == (201, "Bob")
    assert refusal(manager.post(members_url(news), json=new)) == (400, "invalid_field")
    assert bob.get("/api/videos").status_code == 200
    assert refusal(bob.get(members_url(news))) == (403, "not_allowed")
    one = members_url(news, "Bob", office)
    assert manager.patch(one, json={"role": "manager"}).get_json()["role"] == "manager"
    assert bob.get(members_url(news)).status_code == 200
    assert manager.delete(one).status_code == 204
    assert refusal(manager.delete(one)) == (404, "entry_not_found")
    assert bob.get("/api/videos").status_code == 403


def test_who_has_no_account_gets_a_link(office: Office, news: str) -> None:
    manager = office.hire("Ann", Role.MANAGER, project=news)
    new = {"email": "eve@example.org", "role": "editor"}
    answer = manager.post(members_url(news), json=new)
    assert answer.status_code == 202
    code = answer.get_json()["invitation"].removeprefix("http://localhost/join/")
    invitations, password = office.services.identity.invitations, "correct horse battery staple"
    eve = invitations.join(code, name="Eve", password=password)
    joined = manager.get(members_url(news)).get_json()["members"]
    assert (eve.id, "editor") in {(member["id"], member["role"]) for member in joined}
    assert refusal(manager.post(members_url(news), json={**new, "email": "eve"}))[0] == 400


def test_the_last_manager_stays(office: Office, news: str) -> None:
    manager = office.hire("Ann", Role.MANAGER, project=news)
    office.hire("Bob", Role.EDITOR, project=news)
    ann, bob = (members_url(news, name, office) for name in ("Ann", "Bob"))
    assert refusal(manager.delete(ann)) == (409, "last_manager")
    assert refusal(manager.patch(ann, json={"role": "editor"})) == (409, "last_manager")
    assert manager.patch(ann, json={"role": "manager"}).status_code == 200
    assert manager.patch(bob, json={"role": "manager"}).status_code == 200
    assert manager.patch(ann, json={"role": "viewer"}).status_code == 200


def test_members_have_roles_of_members(office: Office, news: str) -> None:
    manager = office.hire("Ann", Role.MANAGER, project=news)
    for role in ("guest", "sender", "boss", ""):
        new = {"email": office.people["Ann"].email, "role": role}
        assert refusal(manager.post(members_url(news), json=new)) == (400, "invalid_field")


def test_an_administrator_manages_projects_without_seeing_their_videos(
    office: Office, news: str
) -> None:
    chief = office.hire("Ann", is_admin=True)
    assert chief.get(members_url(news)).get_json() == {"members": []}
    inside = {"query_string": {"project": news}}
    assert refusal(chief.get("/api/videos", **inside)) == (404, "entry_not_found")
    new = {"email": office.people["Ann"].email, "role": "manager"}
    assert chief.post(members_url(news), json=new).status_code == 201
    assert chief.get("/api/videos", **inside).status_code == 200


def test_an_administrator_limits_a_project_and_uploads_beyond_are_refused(office: Office) -> None:
    chief = office.hire("Ann", is_admin=True)
    url = f"{PROJECTS}/{chief.post(PROJECTS, json={'name': 'News'}).get_json()['id']}"
    limited = chief.patch(url, json={"quota_bytes": 1000, "video_seconds": 86_400})
    assert limited.get_json()["quota_bytes"] == 1000
    assert (limited.get_json()["name"], limited.get_json()["video_seconds"]) == ("News", 86_400)
    here = {"query_string": {"project": url.rpartition("/")[2]}}
    assert (
        chief.post("/api/uploads", json={"name": "a.mp4", "size": 600}, **here).status_code == 201
    )
    refused = chief.post("/api/uploads", json={"name": "b.mp4", "size": 600}, **here)
    assert refusal(refused) == (507, "quota_exceeded")
    assert (refused.get_json()["left"], refused.get_json()["quota"]) == (400, 1000)
    assert chief.get(url).get_json()["used_bytes"] == 600
    assert chief.patch(url, json={"quota_bytes": None}).get_json()["quota_bytes"] is None
    assert refusal(chief.patch(url, json={"quota_bytes": "x"})) == (400, "invalid_field")


def test_a_manager_cannot_change_the_limits_of_a_project(office: Office, news: str) -> None:
    manager = office.hire("Ben", role=Role.MANAGER, project=news)
    url = f"{PROJECTS}/{news}"
    assert refusal(manager.patch(url, json={"quota_bytes": None})) == (403, "not_allowed")
    assert manager.patch(url, json={"name": "Still renamed"}).status_code == 200
