"""Paths that the nginx of `deploy/nginx.conf` opens only to the operator."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.live_server import Server
from tests.nginx import deployed_nginx

OPERATOR, STRANGER = "127.0.0.1", "127.0.0.2"

CLOSED = ["/metrics", "/status", "/api/status"]
SPELLINGS = [
    "/{}?x=1",
    "//{}",
    "/./{}",
    "/static/../{}",
    "/%2e/{}",
    "/{}/",
    "/{}/.",
    "/{}//",
    "/{};x",
    "/{}%3f",
    "/{}%23",
    "/{}#x",
    "http://anything/{}",
]


@pytest.fixture(scope="module")
def nginx(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with deployed_nginx(tmp_path_factory.mktemp("nginx") / "nginx", server.port) as url:
        yield url


def status_of(url: str, path: str, *, source: str) -> int:
    address = urlsplit(url)
    connection = HTTPConnection(
        str(address.hostname), address.port, timeout=60, source_address=(source, 0)
    )
    connection.putrequest("GET", path, skip_host=path.startswith("http"))
    if path.startswith("http"):
        connection.putheader("Host", "localhost")
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("path", CLOSED)
def test_only_the_operator_sees_counts_and_names(nginx: str, path: str) -> None:
    assert status_of(nginx, path, source=OPERATOR) == 200
    assert status_of(nginx, path, source=STRANGER) == 403


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_another_spelling_of_a_closed_path_opens_nothing(nginx: str, spelling: str) -> None:
    for path in CLOSED:
        spelled = spelling.format(path.removeprefix("/"))
        assert status_of(nginx, spelled, source=STRANGER) in {400, 403, 404}, spelled


def test_other_clients_see_the_rest(nginx: str) -> None:
    for path in ("/", "/healthz", "/api/videos"):
        assert status_of(nginx, path, source=STRANGER) == 200
