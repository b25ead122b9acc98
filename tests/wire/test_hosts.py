"""Names the service answers to, and pages that have rebound their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from app.settings import SettingsError, from_env
from tests.server import Server, running_server


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Answers to three names."""
    folder = tmp_path_factory.mktemp("named")
    names = "Videos.example, .films.example,127.0.0.1"
    with running_server(folder, SLUICE_ALLOWED_HOSTS=names) as running:
        yield running


def status(server: Server, host: str, path: str = "/api/videos", **headers: str) -> int:
    return requests.get(
        f"{server.url}{path}", headers={"Host": host, **headers}, timeout=60
    ).status_code


@pytest.mark.parametrize(
    "host",
    ["videos.example", "VIDEOS.example:8000", "films.example", "a.b.films.example", "127.0.0.1:9"],
)
def test_requests_to_its_names_are_answered(named: Server, host: str) -> None:
    assert status(named, host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "a.videos.example",
        "evilfilms.example",
        "videos.example.evil.example",
        "videos.example@evil.example",
        "videos.example:99999",
        "localhost",
        "[::1]",
        "",
    ],
)
def test_a_request_to_another_name_is_refused(named: Server, host: str) -> None:
    assert status(named, host) == 400


def test_nothing_is_done_for_a_rebound_page(named: Server) -> None:
    """To the browser the page is of the same origin as the service."""
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    body = {"name": "planted.mp4", "size": 5}
    response = requests.post(f"{named.url}/api/uploads", json=body, headers=rebound, timeout=60)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert "evil.example" in response.json()["detail"]
    assert named.get("/api/uploads").json()["uploads"] == []


def test_a_proxy_tells_the_name(named: Server) -> None:
    through = {"X-Forwarded-For": "203.0.113.7"}
    assert status(named, "127.0.0.1", **through, **{"X-Forwarded-Host": "evil.example"}) == 400
    assert status(named, "backend", **through, **{"X-Forwarded-Host": "videos.example"}) == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_load_balancers_know_no_name(named: Server, path: str) -> None:
    assert status(named, "10.0.0.7:8000", path) == 200


def test_any_name_is_answered_to_by_default(server: Server) -> None:
    assert status(server, "evil.example") == 200


@pytest.mark.parametrize("text", ["a b", "http://a.example", "a..b", "[::1]", "my_server", "é"])
def test_what_is_no_host_name_is_no_setting(text: str) -> None:
    with pytest.raises(SettingsError, match="SLUICE_ALLOWED_HOSTS"):
        from_env({"SLUICE_ALLOWED_HOSTS": text})
