"""API keys over JSON, and requests that carry one."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.access.keys import is_key
from app.core.access import FIRST_PROJECT, Role
from tests.access.accounts import bearer
from tests.acting import acting
from tests.site import Site

KEYS = "/api/keys"
NEW = {"name": "nightly backup", "role": "uploader"}


@pytest.fixture(scope="module")
def manager(site: Site) -> FlaskClient:
    return site.client(site.person("Ann", Role.MANAGER))


def make(client: FlaskClient, **values: object) -> dict[str, Any]:
    made = client.post(KEYS, json={**NEW, **values})
    assert made.status_code == 201
    document: dict[str, Any] = made.get_json()
    return document


def status_with(site: Site, authorization: str) -> int:
    client, headers = site.client(), {"Authorization": authorization}
    return client.get("/api/videos", headers=headers).status_code


def test_a_key_is_shown_once(manager: FlaskClient) -> None:
    made = make(manager)
    key = made.pop("key")
    assert is_key(key)
    assert made["hint"] == key[:11]
    listed = manager.get(KEYS)
    assert listed.get_json()["keys"][0] == made
    assert key not in listed.text


def test_a_key_works_as_bearer_and_as_password(site: Site, manager: FlaskClient) -> None:
    key = make(manager)["key"]
    for user in ("", "anybody"):
        basic = base64.b64encode(f"{user}:{key}".encode()).decode()
        assert status_with(site, f"Basic {basic}") == 200
    assert status_with(site, f"Bearer {key}") == 200
    assert status_with(site, f"bearer  {key}") == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Bearer {0}x",
        "Bearer {1}",
        "Basic {0}",
        "Basic !",
        "Digest {0}",
        "Bearer sluice_" + 49 * "0",
        "Bearer sluice_é" + 48 * "0",
    ],
)
def test_what_is_no_key_is_refused(site: Site, manager: FlaskClient, authorization: str) -> None:
    key = make(manager)["key"]
    assert status_with(site, authorization.format(key, key[:-1])) == 401


def test_a_revoked_key_is_refused_and_no_longer_listed(site: Site, manager: FlaskClient) -> None:
    made = make(manager)
    assert status_with(site, f"Bearer {made['key']}") == 200
    assert manager.delete(f"{KEYS}/{made['id']}").status_code == 204
    assert status_with(site, f"Bearer {made['key']}") == 401
    assert manager.delete(f"{KEYS}/{made['id']}").status_code == 404
    assert made["id"] not in manager.get(KEYS).text


def test_a_key_expires(site: Site, manager: FlaskClient) -> None:
    made = make(manager, expires=3600)
    until = datetime.fromisoformat(made["expires"]) - datetime.now(UTC)
    assert timedelta(minutes=55) < until <= timedelta(hours=1)
    assert make(manager, expires="2099-01-01")["expires"] == "2099-01-01T00:00:00.000Z"
    keys = site.identity.keys
    past = datetime.now(UTC) - timedelta(seconds=1)
    ctx = acting(site.services.context, FIRST_PROJECT)
    _, key = keys.make(ctx, name="old", role=Role.VIEWER, expires_at=past)
    assert status_with(site, f"Bearer {key}") == 401
    assert manager.post(KEYS, json={**NEW, "expires": "yesterday"}).status_code == 400


def test_the_last_use_is_shown(site: Site, manager: FlaskClient) -> None:
    made = make(manager)
    assert made["used"] is None
    status_with(site, f"Bearer {made['key']}")
    listed = manager.get(KEYS).get_json()["keys"][0]
    used = datetime.fromisoformat(listed["used"])
    assert datetime.now(UTC) - used < timedelta(minutes=1)


def test_only_managers_make_keys_and_each_for_their_own_project(
    site: Site, manager: FlaskClient
) -> None:
    other = site.project()
    client = site.client()
    for role in (Role.VIEWER, Role.UPLOADER, Role.EDITOR):
        assert client.post(KEYS, json=NEW, headers=site.key(role)[1]).status_code == 403
    theirs = {"headers": site.key(Role.MANAGER, project=other)[1]}
    assert make_with(client, theirs)["role"] == "uploader"
    assert len(client.get(KEYS, **theirs).get_json()["keys"]) == 2
    ours = make(manager)
    assert client.delete(f"{KEYS}/{ours['id']}", **theirs).status_code == 404
    elsewhere = {"query_string": {"project": FIRST_PROJECT}}
    assert client.get(KEYS, **theirs, **elsewhere).status_code == 404
    ctx = acting(site.services.context, other)
    assert {key.project_id for key in site.identity.keys.of_project(ctx)} == {other}


def make_with(client: FlaskClient, request: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = client.post(KEYS, json=NEW, **request).get_json()
    return document


def test_a_key_reaches_its_own_project_alone(site: Site, manager: FlaskClient) -> None:
    other = site.project()
    new = {"name": "a.mp4", "size": 3}
    upload = manager.post("/api/uploads", json=new).get_json()["id"]
    client, (_, headers) = site.client(), site.key(Role.EDITOR, project=other)
    for method in ("get", "delete"):
        stranger, unknown = (
            client.open(f"/api/uploads/{upload_id}", method=method, headers=headers)
            for upload_id in (upload, "0" * 32)
        )
        assert stranger.status_code == unknown.status_code == 404
        assert stranger.get_json() == unknown.get_json()


def test_a_wrong_key_is_not_overruled_by_a_session(site: Site, manager: FlaskClient) -> None:
    assert manager.get("/api/videos", headers=bearer("sluice_wrong")).status_code == 401
