"""API keys over JSON, and requests that carry one."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.domain.access import FIRST_PROJECT, Role
from app.identity.key_format import is_key
from app.records.identity.keys import KeyRecords
from tests.identity.accounts import bearer
from tests.identity.office import Office, new_office

KEYS = "/api/keys"
NEW = {"name": "nightly backup", "role": "uploader"}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with new_office(tmp_path_factory.mktemp("office")) as office:
        yield office


@pytest.fixture(scope="module")
def manager(office: Office) -> FlaskClient:
    return office.hire("Ann", Role.MANAGER)


def make(client: FlaskClient, **values: object) -> dict[str, Any]:
    made = client.post(KEYS, json={**NEW, **values})
    assert made.status_code == 201
    document: dict[str, Any] = made.get_json()
    return document


def status_with(office: Office, authorization: str) -> int:
    client, headers = office.app.test_client(), {"Authorization": authorization}
    return client.get("/api/videos", headers=headers).status_code


def test_a_key_is_shown_once(manager: FlaskClient) -> None:
    made = make(manager)
    key = made.pop("key")
    assert is_key(key)
    assert made["hint"] == key[:11]
    listed = manager.get(KEYS)
    assert listed.get_json()["keys"][0] == made
    assert key not in listed.text


def test_a_key_works_as_bearer_and_as_password(office: Office, manager: FlaskClient) -> None:
    key = make(manager)["key"]
    for user in ("", "anybody"):
        basic = base64.b64encode(f"{user}:{key}".encode()).decode()
        assert status_with(office, f"Basic {basic}") == 200
    assert status_with(office, f"Bearer {key}") == 200
    assert status_with(office, f"bearer  {key}") == 200


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
def test_what_is_no_key_is_refused(
    office: Office, manager: FlaskClient, authorization: str
) -> None:
    key = make(manager)["key"]
    assert status_with(office, authorization.format(key, key[:-1])) == 401


def test_a_revoked_key_is_refused_and_no_longer_listed(
    office: Office, manager: FlaskClient
) -> None:
    made = make(manager)
    assert status_with(office, f"Bearer {made['key']}") == 200
    assert manager.delete(f"{KEYS}/{made['id']}").status_code == 204
    assert status_with(office, f"Bearer {made['key']}") == 401
    assert manager.delete(f"{KEYS}/{made['id']}").status_code == 404
    assert made["id"] not in manager.get(KEYS).text


def test_a_key_expires(office: Office, manager: FlaskClient) -> None:
    made = make(manager, expires=3600)
    until = datetime.fromisoformat(made["expires"]) - datetime.now(UTC)
    assert timedelta(minutes=55) < until <= timedelta(hours=1)
    assert make(manager, expires="2099-01-01")["expires"] == "2099-01-01T00:00:00.000Z"
    keys = office.services.identity.keys
    past = datetime.now(UTC) - timedelta(seconds=1)
    _, key = keys.make(FIRST_PROJECT, name="old", role=Role.VIEWER, created_by="", expires_at=past)
    assert status_with(office, f"Bearer {key}") == 401
    assert manager.post(KEYS, json={**NEW, "expires": "yesterday"}).status_code == 400


def test_the_last_use_is_shown(office: Office, manager: FlaskClient) -> None:
    made = make(manager)
    assert made["used"] is None
    status_with(office, f"Bearer {made['key']}")
    listed = manager.get(KEYS).get_json()["keys"][0]
    used = datetime.fromisoformat(listed["used"])
    assert datetime.now(UTC) - used < timedelta(minutes=1)


def test_only_managers_make_keys_and_each_for_their_own_project(
    office: Office, manager: FlaskClient
) -> None:
    other = office.project()
    client = office.app.test_client()
    for role in (Role.VIEWER, Role.UPLOADER, Role.EDITOR):
        assert client.post(KEYS, json=NEW, **office.key(role)).status_code == 403
    theirs = office.key(Role.MANAGER, other)
    assert make_with(client, theirs)["role"] == "uploader"
    assert len(client.get(KEYS, **theirs).get_json()["keys"]) == 2
    ours = make(manager)
    assert client.delete(f"{KEYS}/{ours['id']}", **theirs).status_code == 404
    elsewhere = {"query_string": {"project": FIRST_PROJECT}}
    assert client.get(KEYS, **theirs, **elsewhere).status_code == 404
    records = KeyRecords(office.services.database)
    assert {key.project_id for key in records.of_project(other)} == {other}


def make_with(client: FlaskClient, request: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = client.post(KEYS, json=NEW, **request).get_json()
    return document


def test_a_key_reaches_its_own_project_alone(office: Office, manager: FlaskClient) -> None:
    other = office.project()
    new = {"name": "a.mp4", "size": 3}
    upload = manager.post("/api/uploads", json=new).get_json()["id"]
    client = office.app.test_client()
    for method in ("get", "delete"):
        stranger = client.open(
            f"/api/uploads/{upload}", method=method, **office.key(Role.EDITOR, other)
        )
        unknown = client.open(
            "/api/uploads/" + "0" * 32, method=method, **office.key(Role.EDITOR, other)
        )
        assert stranger.status_code == unknown.status_code == 404
        assert stranger.get_json() == unknown.get_json()


def test_a_wrong_key_is_not_overruled_by_a_session(office: Office, manager: FlaskClient) -> None:
    assert manager.get("/api/videos", headers=bearer("sluice_wrong")).status_code == 401
