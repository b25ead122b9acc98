"""What a proxy forwards about the client, and which proxies are trusted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import requests

from app.db.this_node import ThisNode
from app.http.proxy import ConnectionMiddleware
from app.settings import from_env
from tests.conformance.tus_client import CHUNK_TYPE, Tus
from tests.dropzone_client import random_bytes, read_response
from tests.ietf_client import read_answer, request_bytes
from tests.live_server import ANY_NAME, Server, running_server
from tests.nginx import bare_nginx, deployed_nginx
from tests.waiting import wait_until

TUS = {"Tus-Resumable": "1.0.0", "Upload-Length": "5"}
TOLD = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "films.example:8443",
    "X-Forwarded-Prefix": "/videos",
}
TOLD_URL = "https://films.example:8443/videos/tus"
BALANCER = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https", "X-Forwarded-Port": "443"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that answers to any name."""
    with running_server(tmp_path_factory.mktemp("any"), **ANY_NAME) as running:
        yield running


@pytest.fixture(scope="module")
def with_paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that puts paths into `Location`."""
    folder = tmp_path_factory.mktemp("paths")
    with running_server(folder, SLUICE_LOCATION="path", **ANY_NAME) as running:
        yield running


@pytest.fixture(scope="module")
def untrusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that trusts none of the addresses used here."""
    folder = tmp_path_factory.mktemp("untrusting")
    with running_server(folder, SLUICE_TRUSTED_PROXIES="10.0.0.0/8", **ANY_NAME) as running:
        yield running


@pytest.fixture(scope="module")
def with_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that puts whole URLs into `Location`."""
    folder = tmp_path_factory.mktemp("urls")
    with running_server(folder, SLUICE_LOCATION="url", **ANY_NAME) as running:
        yield running


def create(url: str, **headers: str) -> requests.Response:
    response = requests.post(f"{url}/tus/", headers={**TUS, **headers}, timeout=60)
    assert response.status_code == 201, response.text
    return response


def location(url: str, **headers: str) -> str:
    """The `Location` of a new upload, without its id."""
    return create(url, **headers).headers["Location"].rpartition("/")[0]


# ---- what becomes of it --------------------------------------------------------------------------


def test_a_location_may_be_a_path_with_the_prefix(with_paths: Server) -> None:
    assert location(with_paths.url) == "/tus"
    assert location(with_paths.url, **TOLD) == "/videos/tus"


def test_a_location_may_be_the_url_that_the_client_knows(with_urls: Server) -> None:
    assert location(with_urls.url) == f"{with_urls.url}/tus"
    assert location(with_urls.url, **TOLD) == "https://films.example:8443/videos/tus"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"Host": "films.example"}, "http://films.example/tus"),
        ({"Host": "films.example:81"}, "http://films.example:81/tus"),
        ({"Host": "films.example:80"}, "http://films.example/tus"),
        ({"Host": "films.example", "X-Forwarded-Proto": "https"}, "https://films.example/tus"),
        ({"Host": "films.example:443", "X-Forwarded-Proto": "https"}, "https://films.example/tus"),
        ({"Host": "[::1]:81"}, "http://[::1]:81/tus"),
        ({"Host": "my_server"}, "/tus"),
        ({"Host": "a b"}, "/tus"),
    ],
)
def test_scheme_and_port_are_in_the_url(
    with_urls: Server, told: dict[str, str], expected: str
) -> None:
    assert location(with_urls.url, **told) == expected


def test_the_other_protocol_builds_its_url_the_same_way(with_urls: Server) -> None:
    response = with_urls.post("/resumable/", headers={**TOLD, "Upload-Complete": "?0"})
    assert response.headers["Location"].startswith("https://films.example:8443/videos/resumable/")


def test_a_download_is_found_under_the_prefix(server: Server) -> None:
    path = location(server.url) + "/" + "0" * 32
    response = requests.get(path, headers=TOLD, allow_redirects=False, timeout=60)
    found = response.headers["Location"]
    assert found == f"https://films.example:8443/videos/media/{'0' * 32}"


def test_only_the_nearest_proxy_is_trusted(with_urls: Server) -> None:
    """Each appends to what it was sent, so the last value is the one a trusted one wrote."""
    chain = {name: f"evil.example, {value}" for name, value in TOLD.items()}
    response = create(with_urls.url, **chain)
    assert response.headers["Location"].startswith("https://films.example:8443/videos/tus/")
    assert client_of(with_urls, response.headers["X-Request-ID"]) == "203.0.113.7"


def test_the_page_behind_a_proxy_counts_as_our_own(server: Server) -> None:
    origin = {"Origin": "https://films.example:8443"}
    assert location(server.url, **TOLD, **origin) == "https://films.example:8443/videos/tus"
    response = requests.post(f"{server.url}/tus/", headers={**TUS, **origin}, timeout=60)
    assert response.status_code == 403


# ---- a URL where it is certain -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "{url}/tus"),
        ({"Host": "films.example"}, "http://films.example/tus"),
        (TOLD, "https://films.example:8443/videos/tus"),
        ({**TOLD, "Via": "1.1 Caddy"}, "https://films.example:8443/videos/tus"),
        ({**TOLD, "X-Forwarded-For": "192.0.2.1, 127.0.0.1"}, TOLD_URL),
        ({"Host": "films.example", **BALANCER}, "https://films.example/tus"),
        # An unknown proxy in front of the known one.
        ({**TOLD, "X-Forwarded-For": "192.0.2.1, 192.0.2.2"}, "/videos/tus"),
        ({**TOLD, "Via": "1.1 cdn, 1.1 Caddy"}, "/videos/tus"),
        ({**TOLD, "Forwarded": "for=192.0.2.1, for=192.0.2.2"}, "/videos/tus"),
        # Without a scheme, or with what may be the proxy's own name for the service.
        ({"Host": "films.example", "X-Forwarded-For": "192.0.2.1"}, "/tus"),
        ({"Host": "films.example", "X-Real-IP": "192.0.2.1"}, "/tus"),
        ({"Host": "films.example", "Via": "1.1 proxy"}, "/tus"),
        ({"Host": "films.example", "Forwarded": "for=192.0.2.1;proto=https"}, "/tus"),
        ({"Host": "127.0.0.1:8000", **BALANCER}, "/tus"),
        ({"Host": "[::1]:8000", **BALANCER}, "/tus"),
        ({"Host": "sluice", **BALANCER}, "/tus"),
        # Not the start of a URL.
        ({"Host": "a b"}, "/tus"),
        ({**TOLD, "X-Forwarded-Host": "a b"}, "/videos/tus"),
        ({**TOLD, "X-Forwarded-Proto": "javascript"}, "/videos/tus"),
    ],
)
def test_a_location_is_a_url_only_where_it_is_certain(
    server: Server, headers: dict[str, str], expected: str
) -> None:
    assert location(server.url, **headers) == expected.format(url=server.url)


@pytest.mark.parametrize(
    "name", ["Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port"]
)
def test_behind_an_untrusted_proxy_a_location_is_a_path(untrusting: Server, name: str) -> None:
    assert location(untrusting.url) == f"{untrusting.url}/tus"
    assert location(untrusting.url, **{name: "https"}) == "/tus"
    assert location(untrusting.url, **TOLD, **{name: "https"} if name not in TOLD else {}) == "/tus"


def test_for_http_1_0_a_location_is_a_path(server: Server) -> None:
    with server.connect() as connection:
        head = "POST /tus/ HTTP/1.0\r\nHost: 127.0.0.1:8000\r\n"
        fields = "".join(f"{name}: {value}\r\n" for name, value in TUS.items())
        connection.sendall(f"{head}{fields}\r\n".encode())
        status, headers, _ = read_response(connection)
    assert (status, headers["location"].rpartition("/")[0]) == (201, "/tus")


def test_every_location_is_built_the_same_way(server: Server, untrusting: Server) -> None:
    with server.connect() as connection:
        fields = {"Upload-Complete": "?0", "Upload-Draft-Interop-Version": "8"}
        connection.sendall(request_bytes(server, "POST", "/resumable/", b"", fields))
        answer = read_answer(connection)
    told = [answer.headers["location"], *(headers["location"] for _, headers in answer.interim[:1])]
    assert len(told) == 2
    new = {"name": "a.mp4", "size": 5}
    for asked, headers, start in ((server, {}, server.url), (untrusting, {"Via": "1.1 a"}, "")):
        made = asked.post("/api/uploads", json=new, headers=headers)
        assert made.headers["Location"] == f"{start}/api/uploads/{made.json()['id']}"
        requests.patch(
            f"{asked.url}/tus/{made.json()['id']}",
            data=b"bytes",
            headers={**TUS, "Content-Type": CHUNK_TYPE, "Upload-Offset": "0"},
            timeout=60,
        )
        for path in (f"/tus/{made.json()['id']}", f"/filepond?load={made.json()['id']}"):
            found = asked.get(path, headers=headers, allow_redirects=False)
            assert found.headers["Location"] == f"{start}/media/{made.json()['id']}"
    assert {url.rpartition("/")[0] for url in told} == {f"{server.url}/resumable"}


@pytest.mark.parametrize("name", ["SCRIPT_NAME", "PATH_INFO", "REMOTE_USER", "Script-Name"])
def test_a_header_cannot_set_the_environment(server: Server, name: str) -> None:
    """gunicorn accepts some from trusted addresses, and answers 500 if they are malformed."""
    response = create(server.url, **{name: "/x"})
    assert response.headers["Location"].startswith(f"{server.url}/tus/")


def test_of_two_scheme_headers_the_standard_one_counts(server: Server) -> None:
    both = {**TOLD, "X-Forwarded-Ssl": "off", "X-Forwarded-Protocol": "http"}
    assert location(server.url, **both) == TOLD_URL


# ---- who is trusted ------------------------------------------------------------------------------


def test_other_addresses_are_not_trusted(start_server: Callable[..., Server]) -> None:
    server = start_server(
        **ANY_NAME, SLUICE_TRUSTED_PROXIES="10.0.0.0/8, ::1", SLUICE_LOCATION="url"
    )
    response = create(server.url, **TOLD)
    assert response.headers["Location"].startswith(f"{server.url}/tus/")
    assert client_of(server, response.headers["X-Request-ID"]) == "127.0.0.1"
    headers = {**TUS, **TOLD, "Origin": "https://films.example:8443"}
    assert requests.post(f"{server.url}/tus/", headers=headers, timeout=60).status_code == 403


def test_nobody_is_trusted_if_the_setting_is_empty(
    start_server: Callable[..., Server],
) -> None:
    server = start_server(**ANY_NAME, SLUICE_TRUSTED_PROXIES="", SLUICE_LOCATION="url")
    assert location(server.url, **TOLD) == f"{server.url}/tus"


def test_a_network_can_be_trusted(start_server: Callable[..., Server]) -> None:
    server = start_server(**ANY_NAME, SLUICE_TRUSTED_PROXIES="127.0.0.0/8", SLUICE_LOCATION="url")
    assert location(server.url, **TOLD) == "https://films.example:8443/videos/tus"


@pytest.mark.parametrize(
    ("address", "is_believed"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:11.1.2.3", False),
        ("2001:db8::5", True),
        ("2001:db9::5", False),
        ("::a01:203", False),
        ("fe80::1%eth0", False),
        ("", True),
        ("unknown", False),
    ],
)
def test_addresses_are_compared_as_addresses(
    address: str, is_believed: bool, tmp_path: Path
) -> None:
    settings = from_env({"SLUICE_TRUSTED_PROXIES": "10.0.0.0/8,2001:db8::/32"})
    seen: list[str] = []

    def application(environ: dict[str, Any], _start: object) -> Iterable[bytes]:
        seen.append(environ["wsgi.url_scheme"])
        return []

    environ = {
        "REMOTE_ADDR": address,
        "HTTP_X_FORWARDED_PROTO": "https",
        "wsgi.url_scheme": "http",
    }
    node = ThisNode(tmp_path / "leaving", "")
    ConnectionMiddleware(application, settings.trusted_proxies, node)(environ, lambda *_: print)
    assert seen == ["https" if is_believed else "http"]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("203.0.113.7,10.0.0.2 , 2001:db8::9", "203.0.113.7"),
        # What a client has made up stands before its own address.
        ("6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.9, 203.0.113.7", "203.0.113.7"),
        ("evil, 10.0.0.9, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.8, 10.0.0.2", "10.0.0.8"),
        # Other notations.
        ("203.0.113.7:4711, 10.0.0.2:80", "203.0.113.7"),
        ("[2001:db9::5]:4711, [2001:db8::9]", "2001:db9::5"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        # A proxy that does not know its client stands for it.
        ("203.0.113.7, unknown, 10.0.0.2", "10.0.0.2"),
        ("unknown", "10.0.0.1"),
        ("", "10.0.0.1"),
        (",", "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_trusted_proxy(
    forwarded: str, client: str, tmp_path: Path
) -> None:
    settings = from_env({"SLUICE_TRUSTED_PROXIES": "10.0.0.0/8,2001:db8::/32"})
    seen: list[str] = []

    def application(environ: dict[str, Any], _start: object) -> Iterable[bytes]:
        seen.append(environ["REMOTE_ADDR"])
        return []

    environ = {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": forwarded}
    node = ThisNode(tmp_path / "leaving", "")
    ConnectionMiddleware(application, settings.trusted_proxies, node)(environ, lambda *_: print)
    assert seen == [client]


# ---- the real nginx ------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.parametrize("prefix", ["", "/videos"])
def test_an_upload_goes_through_nginx(
    with_paths: Server, server: Server, tmp_path: Path, prefix: str
) -> None:
    content = random_bytes(3_000_000, 95)
    for index, target in enumerate((server, with_paths)):
        with deployed_nginx(tmp_path / str(index), target.port, prefix) as url:
            tus = Tus(f"{url}/tus/")
            location = tus.post(Upload_Length=len(content))["Location"]
            expected = f"{url}/tus/" if target is server else f"{prefix}/tus/"
            assert location.rpartition("/")[0] + "/" == expected
            upload = f"{url}/tus/{location.rpartition('/')[2]}"
            assert tus.patch(upload, 0, content).status == 204
            assert "checksum-trailer" not in tus.extensions
            assert requests.get(upload, timeout=60).content == content


@pytest.mark.e2e
def test_behind_an_nginx_that_forwards_no_headers_a_location_is_a_path(
    server: Server, tmp_path: Path
) -> None:
    """Such an nginx puts the service's own address into Host, which would send the client there."""
    with bare_nginx(tmp_path / "nginx", server.port) as url:
        assert location(url) == "/tus"
    address = "proxy_set_header X-Real-IP $remote_addr;"
    with bare_nginx(tmp_path / "other", server.port, location_lines=address) as url:
        assert location(url) == "/tus"
    scheme = "proxy_http_version 1.1; proxy_set_header X-Forwarded-Proto $scheme;"
    with bare_nginx(tmp_path / "scheme", server.port, location_lines=scheme) as url:
        assert location(url) == "/tus"


@pytest.mark.e2e
def test_bytes_arrive_while_the_client_is_still_sending(server: Server, tmp_path: Path) -> None:
    with deployed_nginx(tmp_path / "nginx", server.port) as url:
        tus = Tus(f"{url}/tus/")
        created = tus.post(Upload_Length=3_000_000)
        upload = created["Location"]
        with tus.half_sent(upload, 0, 3_000_000, bytes(1_000_000)):
            while tus.offset(upload) == 0:
                time.sleep(0.05)
        offset = tus.offset(upload)
        assert 0 < offset <= 1_000_000
        assert tus.patch(upload, offset, bytes(3_000_000 - offset)).status == 204


@pytest.mark.e2e
def test_nginx_drops_forged_proxy_headers(with_urls: Server, tmp_path: Path) -> None:
    with deployed_nginx(tmp_path / "nginx", with_urls.port) as url:
        response = create(url, **TOLD)
        assert response.headers["Location"].startswith(f"{url}/tus/")
        headers = {**TUS, **TOLD, "Origin": "https://films.example:8443"}
        assert requests.post(f"{url}/tus/", headers=headers, timeout=60).status_code == 403


@pytest.mark.e2e
def test_the_log_names_the_client_and_not_nginx(with_urls: Server, tmp_path: Path) -> None:
    with deployed_nginx(tmp_path / "nginx", with_urls.port) as url:
        connection = HTTPConnection(url.removeprefix("http://"), source_address=("127.0.0.2", 0))
        connection.request("POST", "/tus/", headers={**TUS, **TOLD, "X-Request-ID": "a-request"})
        assert connection.getresponse().status == 201
        connection.close()
        assert client_of(with_urls, "a-request") == "127.0.0.2"


@pytest.mark.e2e
def test_behind_two_trusted_proxies_the_log_names_the_client(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(**ANY_NAME, SLUICE_TRUSTED_PROXIES="127.0.0.1,127.0.0.9")
    with deployed_nginx(tmp_path / "nginx", server.port) as url:
        connection = HTTPConnection(url.removeprefix("http://"), source_address=("127.0.0.9", 0))
        forged = {"X-Forwarded-For": "6.6.6.6, 203.0.113.7", "X-Request-ID": "by-a-cdn"}
        connection.request("POST", "/tus/", headers={**TUS, **forged})
        assert connection.getresponse().status == 201
        connection.close()
        assert client_of(server, "by-a-cdn") == "203.0.113.7"


def client_of(server: Server, request_id: str) -> str:
    """The client of a request, from the access log, which is written a moment later."""
    wait_until(lambda: request_id in server.log, "the request is logged")
    (line,) = (line for line in server.log.splitlines() if request_id in line)
    client: str = json.loads(line)["client"]
    return client
