"""Server-Timing: present, well-formed, and no more than the request took."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
from werkzeug.datastructures import Headers

from tests.dropzone_client import ChunkedFile, form_headers, random_bytes
from tests.live_server import Server
from tests.waiting import wait_until
from tests.web.application import application

METRIC = re.compile(r"([a-z]+);dur=([0-9]+\.[0-9])")

CONTENT = random_bytes(3_000_000)
SITE = "https://films.example"
TUS = {"Tus-Resumable": "1.0.0"}

ROUNDING = 0.05
"""Milliseconds, with one decimal."""


def timing_of(headers: Mapping[str, str] | Headers) -> dict[str, float]:
    """Milliseconds by name; every part of the header must be well-formed."""
    metrics = [METRIC.fullmatch(part) for part in headers["Server-Timing"].split(", ")]
    assert None not in metrics
    return {found[1]: float(found[2]) for found in metrics if found is not None}


def by_dropzone(server: Server) -> requests.Response:
    file = ChunkedFile(CONTENT, len(CONTENT))
    return server.post("/upload", data=file.body(0), headers=form_headers())


def by_batch(server: Server) -> requests.Response:
    return server.post("/batch", files={"file": ("film.mp4", CONTENT)})


def by_tus(server: Server) -> requests.Response:
    length = {"Upload-Length": str(len(CONTENT))}
    created = server.post("/tus/", headers={**TUS, **length})
    return requests.patch(
        f"{server.url}/tus/{created.headers['Location'].rsplit('/', 1)[1]}",
        data=CONTENT,
        headers={
            **TUS,
            "Upload-Offset": "0",
            "Content-Type": "application/offset+octet-stream",
        },
        timeout=60,
    )


def by_the_draft(server: Server) -> requests.Response:
    """Without a version header there is no interim response, which `requests` would misread."""
    return server.post("/resumable/", data=CONTENT, headers={"Upload-Complete": "?1"})


def by_filepond(server: Server) -> requests.Response:
    return server.post("/filepond", files={"filepond": ("film.mp4", CONTENT)})


PROTOCOLS = [by_dropzone, by_batch, by_tus, by_the_draft, by_filepond]


@pytest.mark.parametrize("send", PROTOCOLS, ids=lambda send: send.__name__)
def test_an_upload_in_any_protocol_reports_where_its_time_went(
    server: Server, send: Callable[[Server], requests.Response]
) -> None:
    started = time.perf_counter()
    response = send(server)
    waited = (time.perf_counter() - started) * 1000
    assert response.ok, response.text
    timing = timing_of(response.headers)
    assert {"receive", "write", "sync", "record", "publish", "total"} <= timing.keys()
    total = timing.pop("total")
    assert timing["receive"] > 0
    assert sum(timing.values()) <= total + ROUNDING * len(timing) + ROUNDING
    assert total <= waited


def test_the_stages_make_up_most_of_a_long_request(server: Server) -> None:
    seconds = 1.0

    class Slow:
        """Waits in the middle, once the server is reading."""

        def __iter__(self) -> Any:
            yield CONTENT[:-1]
            wait_until(is_being_read, "the upload has bytes")
            time.sleep(seconds)
            yield CONTENT[-1:]

    def is_being_read() -> bool:
        return bool(server.get(f"/api/uploads/{upload_id}").json()["offset"])

    created = server.post("/tus/", headers={**TUS, "Upload-Length": str(len(CONTENT))})
    upload_id = created.headers["Location"].rsplit("/", 1)[1]
    headers = {**TUS, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    url = f"{server.url}/tus/{upload_id}"
    answer = requests.patch(url, data=Slow(), headers=headers, timeout=60)
    timing = timing_of(answer.headers)
    total = timing.pop("total")
    assert sum(timing.values()) >= total / 2
    assert timing["receive"] >= seconds * 1000 / 2


def test_an_error_reports_timing_and_a_read_does_not(server: Server) -> None:
    refused = server.post("/upload", data=b"x", headers={"Content-Type": "multipart/form-data"})
    assert refused.status_code == 400
    assert "total" in timing_of(refused.headers)
    assert "Server-Timing" not in server.get("/api/uploads").headers


def test_another_site_gets_the_timing_only_if_it_may_upload(tmp_path: Path) -> None:
    new = {"name": "film.mp4", "size": 10}
    with application(tmp_path, cors_origins=frozenset({SITE})) as app:
        client = app.test_client()
        allowed = client.post("/api/uploads", json=new, headers={"Origin": SITE})
        assert allowed.headers["Timing-Allow-Origin"] == SITE
        for origin in ({}, {"Origin": "https://elsewhere.example"}):
            refused = client.post("/api/uploads", json=new, headers=origin)
            assert "total" in timing_of(refused.headers)
            assert "Timing-Allow-Origin" not in refused.headers


def test_an_unknown_method_gets_no_label_of_its_own(tmp_path: Path) -> None:
    with application(tmp_path) as app:
        client = app.test_client()
        client.open("/api/uploads", method="BREW")
        counts = client.get("/metrics").text
        assert 'method="other"' in counts
        assert "BREW" not in counts
