"""Downloads of files in a bucket: by redirects to it, and from the node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from werkzeug.datastructures import Headers

from app.deliver.media import follows_redirects
from scripts.fleet.s3_servers import S3Server
from tests.deliver.stored import received_parts, store
from tests.dropzone_client import random_bytes
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.s3_servers import new_prefix

pytestmark = pytest.mark.e2e

CONTENT = random_bytes(1_000_003, 93)


@pytest.fixture(scope="module")
def redirecting(versitygw: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = {**versitygw.access.settings(new_prefix()), "SLUICE_DIRECT_DOWNLOADS": "1"}
    with running_server(tmp_path_factory.mktemp("redirecting"), **options, **NO_FFMPEG) as running:
        yield running


def test_a_node_sends_several_ranges(redirecting: Server) -> None:
    stored = store(redirecting, "film.mp4", CONTENT)
    response = redirecting.get(stored.path, headers={"Range": "bytes=20-29,0-9,999999-"})
    parts = [part.content for part in received_parts(response)]
    assert parts == [CONTENT[20:30], CONTENT[:10], CONTENT[999_999:]]


@pytest.mark.parametrize("ranges", ["", "bytes=5-9", "bytes=-3", "bytes=999999-99999999"])
def test_a_download_comes_straight_from_the_bucket(redirecting: Server, ranges: str) -> None:
    stored = store(redirecting, "影片 1.mov", CONTENT)
    headers = {"Range": ranges} if ranges else {}
    response = requests.get(f"{stored.url}?download", headers=headers, timeout=60)
    assert [each.status_code for each in response.history] == [302]
    assert not response.url.startswith(redirecting.url)
    kept = {**headers, "Sec-Fetch-Mode": "no-cors"}
    asked = redirecting.get(f"{stored.path}?download", headers=kept)
    assert asked.history == []
    assert (response.status_code, response.content) == (asked.status_code, asked.content)
    assert response.headers.get("Content-Range") == asked.headers.get("Content-Range")
    if not ranges:  # Garage ignores in ranges what the URL says of the answer.
        assert response.headers["Content-Type"] == asked.headers["Content-Type"]
        assert response.headers["Content-Disposition"] == asked.headers["Content-Disposition"]


def test_a_redirect_is_not_kept(redirecting: Server) -> None:
    stored = store(redirecting, "a.mp4", b"x")
    headers = {"Sec-Fetch-Mode": "navigate"}
    response = requests.get(stored.url, headers=headers, allow_redirects=False, timeout=60)
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    "headers",
    [
        {"Range": "bytes=0-9,20-29"},
        {"Range": "bytes=5-9", "If-Range": '"other"'},
        {"If-Match": "*"},
        {"If-Modified-Since": "Mon, 02 Jan 2006 15:04:05 GMT"},
        {"Sec-Fetch-Mode": "cors"},
    ],
    ids=str,
)
def test_what_the_bucket_would_answer_differently_comes_from_the_node(
    redirecting: Server, headers: dict[str, str]
) -> None:
    stored = store(redirecting, "a.mp4", CONTENT)
    response = requests.get(f"{stored.url}?download", headers=headers, timeout=60)
    assert response.history == []
    assert len(response.content) > 100 if "If-Range" not in headers else response.content == CONTENT


def test_the_client_fetches_through_the_node(redirecting: Server, tmp_path: Path) -> None:
    stored = store(redirecting, "a.mp4", CONTENT)
    target = tmp_path / "fetched"
    words = [sys.executable, "-m", "sluice_client", "fetch", stored.id, "-o", str(target)]
    subprocess.run(words, check=True, env={**os.environ, "SLUICE_URL": redirecting.url})
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("headers", "is_download", "follows"),
    [
        ({}, False, False),  # A film on a page without TLS: browsers say nothing there.
        ({}, True, True),
        ({"Sec-Fetch-Mode": "navigate"}, False, True),
        ({"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "video"}, False, False),
        ({"Sec-Fetch-Mode": "cors"}, True, False),
        ({"Sec-Fetch-Mode": "navigate", "If-None-Match": '"a"'}, True, False),
    ],
)
def test_only_downloads_and_opened_links_are_redirected(
    headers: dict[str, str], is_download: bool, follows: bool
) -> None:
    assert follows_redirects(Headers(headers), is_download=is_download) is follows
