"""Other projects' clients send an API key: in a header, or as the password in a URL."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tusclient.client import TusClient

from tests.access.accounts import bearer, make_key, make_project
from tests.clients.test_tus_js import upload as upload_with_tus_js
from tests.live_server import Server

pytestmark = pytest.mark.e2e

CHUNK_BYTES = 6_000_000


@pytest.fixture(scope="module")
def key(closed_server: Server) -> str:
    return make_key(closed_server, project=make_project(closed_server))


def check(server: Server, key: str, upload_url: str, film: Path) -> None:
    video = f"/media/{upload_url.rpartition('/')[2]}"
    assert server.get(video).status_code == 401
    stored = server.get(video, headers=bearer(key))
    assert hashlib.sha256(stored.content).digest() == hashlib.sha256(film.read_bytes()).digest()


def with_password(url: str, key: str) -> str:
    return urlsplit(url)._replace(netloc=f"any:{key}@{urlsplit(url).netloc}").geturl()


def test_tus_js_client(closed_server: Server, key: str, film: Path) -> None:
    options = {"headers": bearer(key), "chunkSize": CHUNK_BYTES}
    outcome = upload_with_tus_js(closed_server.url, film, options=options)
    check(closed_server, key, outcome["url"], film)


@pytest.mark.parametrize("is_in_url", [False, True], ids=["header", "URL"])
def test_tuspy(closed_server: Server, key: str, film: Path, is_in_url: bool) -> None:
    url = with_password(closed_server.url, key) if is_in_url else closed_server.url
    client = TusClient(f"{url}/tus/", headers={} if is_in_url else bearer(key))
    with film.open("rb") as stream:
        uploader = client.uploader(file_stream=stream, chunk_size=CHUNK_BYTES)
        uploader.upload()
    check(closed_server, key, str(uploader.url), film)


def test_curl(closed_server: Server, key: str, film: Path) -> None:
    command = ["curl", "-sS", "--fail", "-u", f":{key}", "-F", f"file=@{film}"]
    answer = subprocess.check_output([*command, f"{closed_server.url}/upload"], timeout=60)
    check(closed_server, key, json.loads(answer)["id"], film)


def test_a_browser_is_not_asked_for_a_password(closed_server: Server) -> None:
    program = closed_server.get("/api/videos")
    page = closed_server.get("/api/videos", headers={"Sec-Fetch-Mode": "cors"})
    assert (program.status_code, page.status_code) == (401, 401)
    assert "Basic" in program.headers["WWW-Authenticate"]
    assert "Basic" not in page.headers["WWW-Authenticate"]
