"""Host names the service answers to, and DNS rebinding."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from app.settings import SettingsError, from_env
from app.settings.values import LOCAL_NAMES
from tests.live_server import Server, running_server


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that answers to three names."""
    folder = tmp_path_factory.mktemp("named")
    names = "Videos.example, .films.example,127.0.0.1"
    with running_server(folder, SLUICE_ALLOWED_HOSTS=names) as running:
        yield running


def ask(server: Server, host: str, path: str = "/api/videos", **headers: str) -> requests.Response:
    return requests.get(f"{server.url}{path}", headers={"Host": host, **headers}, timeout=60)


def expect_refused(response: requests.Response) -> None:
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert "does not answer to the name" in response.json()["detail"]


@pytest.mark.parametrize(
    "host",
    ["videos.example", "VIDEOS.example:8000", "films.example", "a.b.films.example", "127.0.0.1:9"],
)
def test_requests_to_its_names_are_answered(named: Server, host: str) -> None:
    assert ask(named, host).status_code == 200


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
    expect_refused(ask(named, host))


def test_nothing_is_done_for_a_rebound_page(named: Server) -> None:
    """To the browser, the page has the same origin as the service."""
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    body = {"name": "planted.mp4", "size": 5}
    expect_refused(
        requests.post(f"{named.url}/api/uploads", json=body, headers=rebound, timeout=60)
    )
    assert named.get("/api/uploads").json()["uploads"] == []


def test_a_rebound_page_cannot_pose_as_a_proxy(named: Server) -> None:
    """Such a page can send every header but `Host`, from the address of a trusted proxy."""
    told = {"X-Forwarded-Host": "videos.example", "X-Forwarded-For": "127.0.0.1"}
    expect_refused(ask(named, "evil.example", **told))
    override = {"X-HTTP-Method-Override": "POST", "Tus-Resumable": "1.0.0", "Upload-Length": "5"}
    expect_refused(ask(named, "evil.example", "/tus/", **told, **override))
    assert named.get("/api/uploads").json()["uploads"] == []


def test_the_name_a_trusted_proxy_forwards_counts_too(named: Server) -> None:
    expect_refused(ask(named, "127.0.0.1", **{"X-Forwarded-Host": "evil.example"}))
    told = {"X-Forwarded-Host": "videos.example"}
    assert ask(named, "127.0.0.1:8000", **told).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_checks_are_answered_under_any_name(named: Server, path: str) -> None:
    assert ask(named, "10.0.0.7:8000", path).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "a.localhost:1", "127.0.0.1:8000", "[::1]:80"])
def test_without_accounts_the_machine_is_called_by_its_own_names(server: Server, host: str) -> None:
    assert ask(server, host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.7"])
def test_without_accounts_a_rebound_page_reaches_nothing(server: Server, host: str) -> None:
    expect_refused(ask(server, host))


@pytest.mark.parametrize(
    ("options", "is_open", "names"),
    [
        ({}, True, LOCAL_NAMES),
        ({"SLUICE_HOST": "::1"}, True, LOCAL_NAMES),
        ({"SLUICE_HOST": "localhost", "SLUICE_ALLOWED_HOSTS": "a.example"}, True, {"a.example"}),
        ({"SLUICE_ACCESS": "accounts"}, False, set()),
        ({"SLUICE_HOST": "0.0.0.0"}, False, set()),
        ({"SLUICE_HOST": "videos.example"}, False, set()),
        ({"SLUICE_HOST": "0.0.0.0", "SLUICE_ACCESS": "open"}, True, set()),
    ],
)
def test_where_only_the_machine_reaches_it_nobody_signs_in(
    options: dict[str, str], is_open: bool, names: set[str]
) -> None:
    settings = from_env(options)
    assert (settings.is_open, set(settings.names)) == (is_open, set(names))


@pytest.mark.parametrize("text", ["a b", "http://a.example", "a..b", "[::1]", "my_server", "é"])
def test_an_invalid_host_name_is_refused_as_a_setting(text: str) -> None:
    with pytest.raises(SettingsError, match="SLUICE_ALLOWED_HOSTS"):
        from_env({"SLUICE_ALLOWED_HOSTS": text})
