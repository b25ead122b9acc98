"""Clients that know nothing of links send through one: its address is their server."""

from __future__ import annotations

import hashlib
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from tusclient.client import TusClient

from tests.access.accounts import bearer, make_key
from tests.client.bad_line import Line, bad_line, sometimes
from tests.client.running import CommandLine
from tests.clients.test_tus_js import SCRIPT as TUS_JS
from tests.clients.test_tus_js import upload as upload_with_tus_js
from tests.live_server import Server
from tests.nodejs import run_script
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

CONTENT = bytes(range(256)) * 4096
"""A megabyte."""

SLOW_BYTES_PER_SECOND = 200_000
"""Of a line that needs far longer for sixteen of them than the server needs to end a request."""


@pytest.fixture(scope="module")
def site(closed_server: Server) -> Server:
    return closed_server


@pytest.fixture(scope="module")
def key(site: Server) -> dict[str, str]:
    """The header of a member."""
    return bearer(make_key(site))


@pytest.fixture
def make_link(site: Server, key: dict[str, str]) -> Callable[..., dict[str, Any]]:
    def make(**terms: object) -> dict[str, Any]:
        answer = site.post("/api/upload-links", json=terms, headers=key)
        link: dict[str, Any] = answer.json()
        return link

    return make


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(CONTENT)
    return path


def received(site: Server, key: dict[str, str], link: dict[str, Any]) -> list[dict[str, Any]]:
    """What members see of what came through a link."""
    answer = site.get(f"/api/upload-links/{link['id']}", headers=key)
    uploads: list[dict[str, Any]] = answer.json()["uploads"]
    return uploads


def check(site: Server, key: dict[str, str], link: dict[str, Any]) -> None:
    """The film has arrived through the link, once and unharmed."""
    (upload,) = received(site, key, link)
    assert (upload["filename"], upload["state"]) == ("film.mp4", "complete")
    video = site.get(f"/media/{upload['id']}", headers=key)
    assert hashlib.sha256(video.content).digest() == hashlib.sha256(CONTENT).digest()


def test_curl(site: Server, key: dict[str, str], make_link: Any, film: Path) -> None:
    link = make_link(password=" open sesame ")
    sent = ["curl", "-sS", "--fail-with-body", "-u", ": open sesame ", "-F", f"file=@{film}"]
    subprocess.run([*sent, f"{link['url']}/upload"], check=True, capture_output=True, timeout=120)
    check(site, key, link)


def test_tuspy_resumes(site: Server, key: dict[str, str], make_link: Any, film: Path) -> None:
    link = make_link(max_files=1, max_bytes=len(CONTENT))
    client = TusClient(f"{link['url']}/tus/")
    options: dict[str, Any] = {"metadata": {"filename": film.name}, "chunk_size": 300_000}
    with film.open("rb") as file:
        first: Any = client.uploader(file_stream=file, **options)
        first.upload(stop_at=300_000)
        assert first.url.startswith(f"{link['url']}/tus/")
        second: Any = client.uploader(file_stream=file, url=first.url, **options)
        assert second.offset == 300_000
        second.upload()
    check(site, key, link)


def test_tus_js_client_goes_on_after_the_connection_broke(
    site: Server, key: dict[str, str], make_link: Any, film: Path
) -> None:
    link = make_link(max_files=1, max_bytes=len(CONTENT))
    with bad_line(site.port) as line:
        line.on_body = sometimes(Line.reset_after_server, after=300_000, times=1, path="/u/")
        outcome = upload_with_tus_js(line.url + urlsplit(link["url"]).path, film)
    assert (outcome["retries"], outcome["methods"].count("HEAD")) == (1, 1)
    check(site, key, link)


def test_tus_js_client_ends_with_an_error_when_the_link_is_closed(
    site: Server, key: dict[str, str], make_link: Any, tmp_path: Path
) -> None:
    link, film = make_link(), tmp_path / "film.mp4"
    film.write_bytes(CONTENT * 16)
    with bad_line(site.port) as line, ThreadPoolExecutor() as pool:
        line.bytes_per_second = SLOW_BYTES_PER_SECOND
        task = {"path": str(film), "url": line.url + urlsplit(link["url"]).path}
        running = pool.submit(run_script, TUS_JS, task)
        wait_until(lambda: line.sent("/u/") > SLOW_BYTES_PER_SECOND, "it is sending")
        assert site.delete(f"/api/upload-links/{link['id']}", headers=key).status_code == 204
        error = running.result()["error"]
    assert "response code: 410" in error
    assert '"code":"link_closed"' in error
    assert received(site, key, link) == [], "what it has not received is cancelled"


def test_our_client(
    site: Server, key: dict[str, str], make_link: Any, film: Path, tmp_path: Path
) -> None:
    link = make_link()
    command = CommandLine(tmp_path, link["url"])
    sent = command.run("upload", film)
    assert (sent.code, sent.err) == (0, "")
    check(site, key, link)


def test_a_closed_link_ends_a_request_under_way(
    site: Server, key: dict[str, str], make_link: Any
) -> None:
    link = make_link()
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(len(CONTENT))}
    upload = requests.post(f"{link['url']}/tus/", headers=headers, timeout=60).headers["Location"]
    with begin(site, upload) as connection:
        wait_until(lambda: received(site, key, link), "the upload is listed")
        closed = requests.delete(
            f"{site.url}/api/upload-links/{link['id']}", headers=key, timeout=60
        )
        assert closed.status_code == 204
        connection.settimeout(120)
        assert b"204 No Content" not in connection.recv(4096)
    lookup = {"Tus-Resumable": "1.0.0"}
    wait_until(  # Another process may remember the link for a moment.
        lambda: requests.head(upload, headers=lookup, timeout=60).status_code == 410,
        "the closed link is refused",
    )


def begin(site: Server, upload: str) -> socket.socket:
    """A connection on which the first bytes of a long body have been sent."""
    connection = site.connect()
    lines = [
        f"PATCH {upload.removeprefix(site.url)} HTTP/1.1",
        f"Host: 127.0.0.1:{site.port}",
        "Tus-Resumable: 1.0.0",
        "Upload-Offset: 0",
        f"Content-Length: {len(CONTENT)}",
        "Content-Type: application/offset+octet-stream",
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + CONTENT[:1000])
    return connection


def test_codes_of_links_are_not_logged(site: Server, make_link: Any, film: Path) -> None:
    link = make_link()
    code = link["url"].rpartition("/")[2]
    requests.get(link["url"], timeout=60)
    with film.open("rb") as file:
        requests.post(f"{link['url']}/upload", files={"file": file}, timeout=60)
    requests.get(f"{site.url}//u/{code}", timeout=60)
    wait_until(lambda: site.log.count('"/u/***"') and site.log.count('"/u/***/upload"'), "both")
    assert code not in site.log
