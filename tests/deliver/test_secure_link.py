"""Files of share links that nginx sends by itself, with `deploy/nginx-secure-link.conf`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from app.http.documents import sign
from tests.deliver.stored import Stored, store
from tests.deliver.test_shared import Shared, share
from tests.dropzone_client import random_bytes
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.nginx import deployed_nginx
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

CONTENT = random_bytes(300_003, 17)
SECRET = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = {"SLUICE_SECURE_LINK_SECRET": SECRET, **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("signed"), **options) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of nginx."""
    return tmp_path_factory.mktemp("nginx") / "nginx"


@pytest.fixture(scope="module")
def nginx(server: Server, folder: Path) -> Iterator[str]:
    with deployed_nginx(folder, server.port, library=server.library, link_secret=SECRET) as url:
        yield url


@pytest.fixture(scope="module")
def film(server: Server) -> Stored:
    return store(server, "Été à la mer.webm", CONTENT)


@pytest.fixture(scope="module")
def link(server: Server, film: Stored) -> Shared:
    return share(server, film, can_download=True)


def test_a_signed_url_is_answered_without_asking(
    server: Server, nginx: str, film: Stored, link: Shared
) -> None:
    url = link.state(film)["media"]
    before = requests_of(server, film)
    whole = requests.get(nginx + url, timeout=60)
    part = requests.get(nginx + url, headers={"Range": "bytes=1000-1999"}, timeout=60)
    assert (whole.status_code, whole.content) == (200, CONTENT)
    assert (part.status_code, part.content) == (206, CONTENT[1000:2000])
    ours = requests.get(server.url + url, timeout=60)
    for name in ("Content-Type", "ETag", "Cache-Control", "X-Content-Type-Options"):
        assert whole.headers[name] == ours.headers[name]
    same = {"Range": "bytes=0-9", "If-Range": ours.headers["ETag"]}
    assert requests.get(nginx + url, headers=same, timeout=60).status_code == 206
    wait_until(lambda: requests_of(server, film) > before, "the direct request is in the log")
    assert requests_of(server, film) == before + 1, "those through nginx are not"


def test_a_signed_download_has_the_files_name(nginx: str, film: Stored, link: Shared) -> None:
    button = f"{link.url}/{film.id}/download"
    to_file = link.browser.get(button, timeout=60, allow_redirects=False)
    answer = requests.get(nginx + to_file.headers["Location"], timeout=60)
    assert answer.content == CONTENT
    expected = "attachment; filename*=UTF-8''%C3%89t%C3%A9%20%C3%A0%20la%20mer.webm"
    assert answer.headers["Content-Disposition"] == expected


def test_without_a_valid_signature_sluice_decides(
    server: Server, nginx: str, film: Stored, link: Shared
) -> None:
    url = link.state(film)["media"]
    path = url.partition("?")[0]
    asked_before = requests_of(server, film)
    expires = int(time.time()) - 1
    late = sign(path, "video/webm", "", expires=expires, secret=SECRET)
    stale = f"{path}?expires={expires}&type=video/webm&name=&signature={late}"
    forged = url.replace("type=video/webm", "type=text/html")
    for each in (path, stale, forged):
        answer = requests.get(nginx + each, timeout=60)
        assert (answer.content, answer.headers["Content-Type"]) == (CONTENT, "video/webm")
    wait_until(lambda: requests_of(server, film) >= asked_before + 3, "Sluice was asked")
    elsewhere = url.replace(link.ticket(film), "/t/forged")
    assert requests.get(nginx + elsewhere, timeout=60).status_code == 404
    assert requests.get(f"{nginx}/shared/{film.id}", timeout=60).status_code == 404


def test_the_log_of_nginx_has_no_secrets_of_urls(nginx: str, folder: Path) -> None:
    hidden = ["/s/{}", "/u/{}/tus/1", "/t/{}/media/1", "/join/{}", "/reset/{}", "/set-up/{}"]
    paths = [each.format("SECRET") for each in hidden] + ["/api/videos"]
    for path in paths:
        requests.get(f"{nginx}{path}?signature=SECRET", headers={"Referer": "SECRET"}, timeout=60)
    wait_until(
        lambda: "GET /api/videos HTTP/1.1" in (folder / "access").read_text(), "all is logged"
    )
    log = (folder / "access").read_text()
    assert "SECRET" not in log
    for path in hidden:
        assert f'"GET {path.format("***")} HTTP/1.1"' in log


def requests_of(server: Server, film: Stored) -> int:
    """How many requests for the file have reached the server."""
    return sum(f"/media/{film.id}" in line for line in server.log.splitlines())
