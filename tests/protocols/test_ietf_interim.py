"""104 interim responses on raw connections: when, to whom, and what they must not break."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.dropzone_client import random_bytes, stored_sha256
from tests.ietf_client import (
    Answer,
    append,
    create,
    read_answer,
    read_head,
    request_bytes,
    request_head,
    send,
    send_request,
)
from tests.live_server import Server

FILE = random_bytes(200_000, 82)
NEWEST = {"Upload-Draft-Interop-Version": "9", "Upload-Complete": "?1"}


def drip(connection: socket.socket, content: bytes, seconds: float, steps: int = 20) -> None:
    """Send `content` evenly over that many seconds."""
    size = -(-len(content) // steps)
    for start in range(0, len(content), size):
        connection.sendall(content[start : start + size])
        time.sleep(seconds / steps)


def slow_upload(server: Server, version: str, seconds: float) -> Answer:
    """The answer to a creation whose body takes that long."""
    name, value = ("Incomplete", "?0") if version == "3" else ("Complete", "?1")
    headers = {"Upload-Draft-Interop-Version": version, f"Upload-{name}": value}
    with server.connect() as connection:
        length = {"Content-Length": str(len(FILE))}
        connection.sendall(request_head(server, "POST", "/resumable/", {**headers, **length}))
        drip(connection, FILE, seconds)
        return read_answer(connection)


def test_the_upload_url_is_sent_before_the_first_byte_arrives(server: Server) -> None:
    with server.connect() as connection:
        headers = {**NEWEST, "Content-Length": str(len(FILE))}
        connection.sendall(request_head(server, "POST", "/resumable/", headers))
        status, interim = read_head(connection)
        assert status == 104
        assert "max-age=" in interim["upload-limit"]
        assert "upload-offset" not in interim
        connection.sendall(FILE)
        answer = read_answer(connection)
    assert (answer.status, answer.interim) == (200, [])
    assert answer.headers["location"] == interim["location"]


def test_a_client_that_expects_100_may_send_before_it_learns_the_url(server: Server) -> None:
    with server.connect() as connection:
        headers = {**NEWEST, "Content-Length": str(len(FILE)), "Expect": "100-continue"}
        connection.sendall(request_head(server, "POST", "/resumable/", headers))
        assert [read_head(connection)[0], read_head(connection)[0]] == [100, 104]
        connection.sendall(FILE)
        assert read_answer(connection).status == 200


def test_progress_is_reported_and_never_goes_back(server: Server) -> None:
    began = time.monotonic()
    answer = slow_upload(server, "9", seconds=5)
    seconds = time.monotonic() - began
    assert answer.status == 200
    (_, first), *others = answer.interim
    assert "location" in first
    assert all("location" not in headers for _, headers in others)
    offsets = [int(headers["upload-offset"]) for _, headers in others]
    assert offsets == sorted(set(offsets))
    assert 1 <= len(offsets) <= seconds
    assert all(0 < offset <= len(FILE) for offset in offsets)


def test_progress_of_an_append_is_reported_without_a_location(server: Server) -> None:
    upload_id = create(server).upload_id
    with server.connect() as connection:
        headers = {
            **NEWEST,
            "Upload-Offset": "0",
            "Content-Type": "application/partial-upload",
            "Content-Length": str(len(FILE)),
        }
        path = f"/resumable/{upload_id}"
        connection.sendall(request_head(server, "PATCH", path, headers))
        drip(connection, FILE, seconds=4)
        answer = read_answer(connection)
    assert answer.status == 200
    assert answer.interim
    assert all(set(headers) == PROGRESS for _, headers in answer.interim)


PROGRESS = {"upload-draft-interop-version", "upload-offset"}


@pytest.mark.parametrize("version", ["3", "4"])
def test_drafts_without_progress_get_only_the_url(server: Server, version: str) -> None:
    answer = slow_upload(server, version, seconds=3)
    assert answer.status == 201
    assert [status for status, _ in answer.interim] == [104]


def test_a_client_of_http_1_0_gets_only_its_answer(server: Server) -> None:
    request = request_bytes(server, "POST", "/resumable/", FILE, NEWEST)
    with server.connect() as connection:
        connection.sendall(request.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1))
        answer = read_answer(connection)
    assert (answer.status, answer.interim) == (200, [])


@pytest.mark.parametrize("name", ["Via", "Forwarded", "X-Forwarded-For"])
def test_a_client_behind_a_proxy_gets_only_its_answer(server: Server, name: str) -> None:
    sign = {name: "for=192.0.2.1" if name == "Forwarded" else "1.1 proxy.example"}
    answer = send_request(server, "POST", "/resumable/", FILE, {**NEWEST, **sign})
    assert (answer.status, answer.interim) == (200, [])
    assert answer.headers["upload-draft-interop-version"] == "9"


def test_a_refused_creation_announces_nothing(server: Server) -> None:
    answer = send(server, "POST", body=FILE, **NEWEST, Upload_Length="5")
    assert (answer.status, answer.interim) == (400, [])


def test_the_connection_serves_further_requests_after_interim_responses(server: Server) -> None:
    request = request_bytes(server, "POST", "/resumable/", FILE, NEWEST)
    with server.connect() as connection:
        connection.sendall(request + request)
        answers = [read_answer(connection), read_answer(connection)]
    assert [answer.status for answer in answers] == [200, 200]
    assert [len(answer.interim) for answer in answers] == [1, 1]
    first, second = [answer.upload_id for answer in answers]
    assert stored_sha256(server, first) == stored_sha256(server, second)


def test_curl_shows_all_responses_in_order(server: Server, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    file = tmp_path / "film.mp4"
    file.write_bytes(FILE)
    headers = {**NEWEST, "Expect": "100-continue"}
    options = [part for name in headers for part in ("-H", f"{name}: {headers[name]}")]
    result = subprocess.run(
        [curl, "-s", "-i", "-T", file, *options, f"{server.url}/resumable"],
        capture_output=True,
        check=True,
    )
    lines = result.stdout.splitlines()
    statuses = [int(line.split()[1]) for line in lines if line.startswith(b"HTTP/1.1")]
    assert statuses == [100, 104, 200]


def test_an_append_too_short_for_progress_gets_only_its_answer(server: Server) -> None:
    upload_id = create(server).upload_id
    version = {"Upload_Draft_Interop_Version": "9"}
    assert append(server, upload_id, 0, FILE, is_last=True, **version).interim == []
