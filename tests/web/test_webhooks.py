"""Webhooks over HTTP: JSON, pages, and one real server that sends."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from flask.testing import FlaskClient
from standardwebhooks import Webhook as Verifier

from app.access.webhooks import SUBSCRIBABLE
from tests.access.receiver import running_receiver
from tests.live_server import Server
from tests.waiting import wait_until
from tests.web.application import application

URL = "https://hooks.example/sluice?token=private"
UNKNOWN = "f" * 32


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    with application(tmp_path_factory.mktemp("webhooks")) as app:
        yield app.test_client()


@pytest.fixture
def webhook(client: FlaskClient) -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = client.post("/api/webhooks", json={"url": URL}).get_json()
    yield made
    client.delete(f"/api/webhooks/{made['id']}")


def got(client: FlaskClient, path: str) -> dict[str, Any]:
    document: dict[str, Any] = client.get(path).get_json()
    return document


def last_told(client: FlaskClient) -> dict[str, Any]:
    entry: dict[str, Any] = got(client, "/api/audit?limit=1")["entries"][0]
    return entry


def test_a_webhook_is_made_listed_changed_and_removed(client: FlaskClient) -> None:
    answer = client.post("/api/webhooks", json={"url": URL, "events": ["video.ready"]})
    made = answer.get_json()
    assert (answer.status_code, made["events"]) == (201, ["video.ready"])
    assert made["secret"].startswith("whsec_")
    path = f"/api/webhooks/{made['id']}"
    shown = got(client, path)
    assert shown == {name: value for name, value in made.items() if name != "secret"}
    assert got(client, "/api/webhooks")["webhooks"] == [shown]
    changed = client.patch(path, json={"paused": True, "events": ["video.failed"]}).get_json()
    assert changed == {**shown, "paused": True, "events": ["video.failed"]}
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == client.delete(path).status_code == 404


def test_what_is_done_to_webhooks_is_told_without_their_secrets(
    client: FlaskClient, webhook: dict[str, Any]
) -> None:
    assert last_told(client)["action"] == "webhook.made"
    secret = client.post(f"/api/webhooks/{webhook['id']}/secret")
    assert secret.get_json() == {"secret": webhook["secret"]}
    told = last_told(client)
    assert told["action"] == "webhook.secret_shown"
    assert told["details"]["host"] == "hooks.example"
    assert "private" not in str(told)
    assert webhook["secret"] not in str(told)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": 1},
        {"url": "ftp://hooks.example/"},
        {"url": "http://127.0.0.1/"},
        {"url": "https://ann:secret@hooks.example/"},
        {"url": URL, "events": []},
        {"url": URL, "events": "video.ready"},
        {"url": URL, "events": ["video.renamed"]},
    ],
)
def test_unusable_webhooks_are_refused(client: FlaskClient, body: dict[str, Any]) -> None:
    assert client.post("/api/webhooks", json=body).status_code == 400


def test_deliveries_wait_are_paged_and_sent_again(
    client: FlaskClient, webhook: dict[str, Any]
) -> None:
    path = f"/api/webhooks/{webhook['id']}"
    for _ in range(3):
        assert client.post(f"{path}/test").status_code == 202
    first = got(client, f"{path}/deliveries?limit=2")
    second = got(client, f"{path}/deliveries?limit=2&cursor={first['next']}")
    found = [*first["deliveries"], *second["deliveries"]]
    assert (len({each["id"] for each in found}), second["next"]) == (3, None)
    assert {(each["type"], each["state"]) for each in found} == {("webhook.test", "waiting")}
    again = client.post(f"{path}/deliveries/{found[0]['id']}/send-again")
    assert (again.status_code, again.get_json()["state"]) == (202, "waiting")
    assert client.post(f"{path}/deliveries/{UNKNOWN}/send-again").status_code == 404
    assert client.patch(path, json={"paused": "yes"}).status_code == 400
    assert client.get(f"{path}/deliveries?limit=0").status_code == 400


def test_an_upload_of_this_server_becomes_an_event(
    client: FlaskClient, webhook: dict[str, Any]
) -> None:
    client.post("/upload", data={"file": (io.BytesIO(b"film"), "film.mp4")})
    (delivery,) = got(client, f"/api/webhooks/{webhook['id']}/deliveries")["deliveries"]
    assert delivery["type"] == "upload.completed"
    assert "film.mp4" in client.get(f"/webhooks/{webhook['id']}").text


def test_the_pages_make_show_pause_and_remove_a_webhook(client: FlaskClient) -> None:
    fields: dict[str, str] = {"url": URL} | {event.value: "1" for event in SUBSCRIBABLE}
    made = client.post("/webhooks", data=fields)
    assert made.status_code == 200
    assert "whsec_" in made.text
    (path,) = re.findall(r'href="(/webhooks/[0-9a-f]{32})"', client.get("/webhooks").text)
    assert "whsec_" not in client.get(path).text
    assert "whsec_" in client.post(f"{path}/secret").text
    assert "stops working at once" not in client.get(path).text
    assert client.post(f"{path}/secret/renew").headers["Location"] == path, (
        "a reload changes nothing"
    )
    assert "stops working at once" in client.get(path).text
    assert client.post(f"{path}/test").headers["Location"] == path
    page = client.get(path).text
    (again,) = re.findall(r'action="(/webhooks/[^"]+/send-again)"', page)
    assert client.post(again).status_code == 303
    client.post(f"{path}/pause", data={"paused": "on"})
    assert "Resume" in client.get(path).text
    client.post(f"{path}/pause", data={"paused": ""})
    assert "Resume" not in client.get(path).text
    assert client.post(f"{path}/remove").headers["Location"] == "/webhooks"
    assert client.get(path).status_code == 404


def test_what_is_wrong_with_the_form_is_beside_its_field(client: FlaskClient) -> None:
    refused = client.post("/webhooks", data={"url": 'ftp://"><script>'})
    assert refused.status_code == 400
    assert 'aria-invalid="true"' in refused.text
    assert "Choose at least one event." in refused.text
    assert "<script>" not in refused.text.replace('<script type="module"', "")
    private = client.post("/webhooks", data={"url": "http://10.0.0.1/", "video.ready": "1"})
    assert "private network" in private.text


@pytest.mark.e2e
def test_a_server_tells_of_an_upload_and_of_its_end(start_server: Callable[..., Server]) -> None:
    server = start_server(SLUICE_WEBHOOK_PRIVATE="1")
    with running_receiver() as receiver:
        made = requests.post(f"{server.url}/api/webhooks", json={"url": receiver.url}, timeout=60)
        secret = made.json()["secret"]
        file = {"file": ("notes.txt", b"no film")}
        video = requests.post(f"{server.url}/upload", files=file, timeout=60).json()["id"]
        wait_until(lambda: len(receiver.received) == 2, "the upload and its failure are told")
        requests.delete(f"{server.url}/api/videos/{video}", timeout=60)
        wait_until(lambda: len(receiver.received) == 3, "the deletion is told")
    told = [Verifier(secret).verify(each.body, each.headers) for each in receiver.received]
    types = [each["type"] for each in told]
    assert types == ["upload.completed", "video.failed", "video.deleted"]
    assert {each["data"]["id"] for each in told} == {video}
