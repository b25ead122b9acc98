"""Projects and their members over JSON."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from app.core.access import FIRST_PROJECT, Role
from tests.site import Site

PROJECTS = "/api/projects"


@pytest.fixture
def news(site: Site) -> str:
    """A new project."""
    return site.project()


def members_url(project: str, name: str = "", site: Site | None = None) -> str:
    url = f"{PROJECTS}/{project}/members"
    return f"{url}/{site.people[name].id}" if site else url


def names(client: FlaskClient, **request: Any) -> list[str]:
    answer = client.get(PROJECTS, **request)
    assert answer.status_code == 200
    return [project["name"] for project in answer.get_json()["projects"]]


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.get_json()["code"]


def test_an_administrator_makes_renames_and_deletes_projects(site: Site) -> None:
    chief = site.client(site.person("Ann", is_admin=True))
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


def test_a_project_with_videos_or_uploads_is_not_deleted(site: Site) -> None:
    chief = site.client(site.person("Ann", is_admin=True))
    project = chief.post(PROJECTS, json={"name": "News"}).get_json()["id"]
    inside = {"query_string": {"project": project}}
    new = {"name": "a.mp4", "size": 3}
    upload = chief.post("/api/uploads", json=new, **inside).get_json()["id"]
    assert refusal(chief.delete(f"{PROJECTS}/{project}")) == (409, "project_in_use")
    assert chief.delete(f"/api/uploads/{upload}").status_code == 204
    assert chief.delete(f"{PROJECTS}/{project}").status_code == 204
    assert refusal(chief.delete(f"{PROJECTS}/{FIRST_PROJECT}")) == (409, "project_in_use")


def test_others_see_their_own_projects_and_make_none(site: Site, news: str) -> None:
    manager, nobody = site.client(site.person("Ann", Role.MANAGER)), site.client()
    for client, request in (
        (manager, {}),
        (nobody, {"headers": site.key(Role.VIEWER)[1]}),
        (nobody, {"headers": site.key(Role.MANAGER)[1]}),
    ):
        assert names(client, **request) == ["Videos"]
        made = client.post(PROJECTS, json={"name": "News"}, **request)
        assert refusal(made) == (403, "not_allowed")
        assert refusal(client.get(members_url(news), **request)) == (404, "entry_not_found")
    assert refusal(nobody.get(members_url(news))) == (401, "not_signed_in")


def test_a_name_is_one_line(site: Site) -> None:
    chief = site.client(site.person("Ann", is_admin=True))
    for name in ("", "  ", "x" * 101, "two\x00lines"):
        assert refusal(chief.post(PROJECTS, json={"name": name})) == (400, "invalid_field")


def test_a_manager_lets_others_in_and_out(site: Site, news: str) -> None:
    manager, bob = (
        site.client(site.person("Ann", Role.MANAGER, project=news)),
        site.client(site.person("Bob")),
    )
    assert bob.get("/api/videos").status_code == 403
    new = {"email": f" {site.people['Bob'].email.title()} ", "role": "uploader"}
    invited = manager.post(members_url(news), json=new)
    assert invited.status_code == 202
    code = invited.get_json()["invitation"].removeprefix("http://localhost/join/")
    assert bob.get("/api/videos").status_code == 403, "Bob is asked first"
    assert bob.post(f"/join/{code}", data={"person": site.people["Bob"].id}).status_code == 303
    assert refusal(manager.post(members_url(news), json=new)) == (400, "invalid_field")
    assert bob.get("/api/videos").status_code == 200
    assert refusal(bob.get(members_url(news))) == (403, "not_allowed")
    one = members_url(news, "Bob", site)
    assert manager.patch(one, json={"role": "manager"}).get_json()["role"] == "manager"
    assert bob.get(members_url(news)).status_code == 200
    assert manager.delete(one).status_code == 204
    assert refusal(manager.delete(one)) == (404, "entry_not_found")
    assert bob.get("/api/videos").status_code == 403


def test_an_administrator_adds_an_account_without_asking(site: Site, news: str) -> None:
    chief, bob = site.client(site.person("Ann", is_admin=True)), site.person("Bob")
    added = chief.post(members_url(news), json={"email": bob.email, "role": "uploader"})
    assert (added.status_code, added.get_json()["name"]) == (201, "Bob")


def test_who_has_no_account_gets_a_link(site: Site, news: str) -> None:
    manager = site.client(site.person("Ann", Role.MANAGER, project=news))
    new = {"email": "eve@example.org", "role": "editor"}
    answer = manager.post(members_url(news), json=new)
    assert answer.status_code == 202
    code = answer.get_json()["invitation"].removeprefix("http://localhost/join/")
    invitations, password = site.identity.invitations, "correct horse battery staple"
    eve = invitations.join(site.operator, code, name="Eve", password=password)
    joined = manager.get(members_url(news)).get_json()["members"]
    assert (eve.id, "editor") in {(member["id"], member["role"]) for member in joined}
    assert refusal(manager.post(members_url(news), json={**new, "email": "eve"}))[0] == 400


def test_the_last_manager_stays(site: Site, news: str) -> None:
    manager = site.client(site.person("Ann", Role.MANAGER, project=news))
    site.client(site.person("Bob", Role.EDITOR, project=news))
    ann, bob = (members_url(news, name, site) for name in ("Ann", "Bob"))
    assert refusal(manager.delete(ann)) == (409, "last_manager")
    assert refusal(manager.patch(ann, json={"role": "editor"})) == (409, "last_manager")
    assert manager.patch(ann, json={"role": "manager"}).status_code == 200
    assert manager.patch(bob, json={"role": "manager"}).status_code == 200
    assert manager.patch(ann, json={"role": "viewer"}).status_code == 200


def test_members_have_roles_of_members(site: Site, news: str) -> None:
    manager = site.client(site.person("Ann", Role.MANAGER, project=news))
    for role in ("guest", "sender", "boss", ""):
        new = {"email": site.people["Ann"].email, "role": role}
        assert refusal(manager.post(members_url(news), json=new)) == (400, "invalid_field")


def test_an_administrator_manages_projects_without_seeing_their_videos(
    site: Site, news: str
) -> None:
    chief = site.client(site.person("Ann", is_admin=True))
    assert chief.get(members_url(news)).get_json() == {"members": []}
    inside = {"query_string": {"project": news}}
    assert refusal(chief.get("/api/videos", **inside)) == (404, "entry_not_found")
    new = {"email": site.people["Ann"].email, "role": "manager"}
    assert chief.post(members_url(news), json=new).status_code == 201
    assert chief.get("/api/videos", **inside).status_code == 200


def test_an_administrator_limits_a_project_and_uploads_beyond_are_refused(site: Site) -> None:
    chief = site.client(site.person("Ann", is_admin=True))
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


def test_a_manager_cannot_change_the_limits_of_a_project(site: Site, news: str) -> None:
    manager = site.client(site.person("Ben", role=Role.MANAGER, project=news))
    url = f"{PROJECTS}/{news}"
    assert refusal(manager.patch(url, json={"quota_bytes": None})) == (403, "not_allowed")
    assert manager.patch(url, json={"name": "Still renamed"}).status_code == 200
