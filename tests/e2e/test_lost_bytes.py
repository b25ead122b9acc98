"""Ways in which bytes could be acknowledged without being stored."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dropzone_client import (
    BOUNDARY,
    ChunkedFile,
    form_body,
    form_headers,
    random_bytes,
    read_json,
    request_bytes,
    send_all,
    send_chunk,
    stored_sha256,
)
from tests.live_server import ROOT, Server
from tests.waiting import wait_until


def test_a_part_shorter_than_its_fields_claim_is_refused_unread(server: Server) -> None:
    file = ChunkedFile(random_bytes(300_000, 50), 300_000)
    short = form_body(file.fields(0), [(file.filename, file.content[:-10])])
    response = server.post("/upload", data=short, headers=form_headers())
    assert (response.status_code, response.json()["code"]) == (400, "chunk_mismatch")
    assert send_chunk(server, file, 0).json()["complete"] is True
    assert stored_sha256(server, send_chunk(server, file, 0).json()["id"]) == file.sha256


@pytest.mark.parametrize("missing", [1, 2])
def test_a_slightly_short_part_is_not_completed_with_its_delimiter(
    server: Server, missing: int
) -> None:
    file = ChunkedFile(random_bytes(2_000_000, 55 + missing), 2_000_000)
    body = form_body(file.fields(0), [(file.filename, file.content[:-missing])])
    request = request_bytes(server, "/upload", body, Content_Type=form_headers()["Content-Type"])
    with server.connect() as connection:
        connection.sendall(request[:1_500_000])
        time.sleep(1.5)
        connection.sendall(request[1_500_000:])
        assert read_json(connection)[0] == 400
    upload_id = send_chunk(server, file, 0).json()["id"]
    assert stored_sha256(server, upload_id) == file.sha256


def test_a_short_part_followed_by_others_is_kept_only_once_verified(
    server: Server,
) -> None:
    file = ChunkedFile(random_bytes(2_000_000, 51), 2_000_000)
    closing = f"--{BOUNDARY}--\r\n".encode()
    short = form_body(file.fields(0), [(file.filename, file.content[:-500])])
    body = short.removesuffix(closing) + form_body({"later": "x" * 1000}, [])
    request = request_bytes(server, "/upload", body, Content_Type=form_headers()["Content-Type"])
    with server.connect() as connection:
        connection.sendall(request[:1_500_000])
        time.sleep(2.5)  # Long enough for a checkpoint, if there were any.
        connection.sendall(request[1_500_000:])
        status, problem = read_json(connection)
    assert (status, problem["code"]) == (400, "malformed_body")
    upload_id = send_chunk(server, file, 0).json()["id"]
    assert stored_sha256(server, upload_id) == file.sha256


def test_a_staged_file_removed_under_its_writer_is_not_acknowledged(server: Server) -> None:
    for _ in range(10):
        with server.connect() as writer:
            file, rest = removed_under_its_writer(server, writer)
            if server.get(f"/api/uploads/{file.key}").json()["received"]:
                continue  # A busy machine: a checkpoint had recorded bytes before.
            assert send_chunk(server, file, 1).status_code == 200
            writer.sendall(rest)
            status, problem = read_json(writer)
            break
    else:
        pytest.fail("bytes are always recorded before they are removed")
    assert (status, problem["retryable"]) == (500, True)
    assert send_chunk(server, file, 0).json()["complete"] is True
    assert stored_sha256(server, file.key) == file.sha256


def removed_under_its_writer(server: Server, writer: socket.socket) -> tuple[ChunkedFile, bytes]:
    """A file whose staged bytes were removed, and the rest of the request for its first chunk."""
    file = ChunkedFile(random_bytes(400_000, 52), 200_000)
    body = {"name": file.filename, "size": len(file.content)}
    file.key = server.post("/api/uploads", json=body).json()["id"]
    request = request_bytes(
        server, "/upload", file.body(0), Content_Type=form_headers()["Content-Type"]
    )
    writer.sendall(request[:100_000])
    staged = server.staging / file.key
    wait_until(lambda: is_open(staged, server), "it is being written")
    staged.unlink()
    return file, request[100_000:]


def is_open(path: Path, server: Server) -> bool:
    """Whether a web worker has opened the file."""
    opened = (file.path for worker in server.web_workers() for file in worker.open_files())
    return str(path) in opened


def test_a_chunked_body_of_the_wrong_length_is_refused(server: Server) -> None:
    file = ChunkedFile(random_bytes(3000, 53), 1000)
    for content in (file.chunk(0) + b"x", file.chunk(0)[:-1]):
        response = server.post(
            "/upload",
            params=file.fields(0),
            data=iter([content]),
            headers={"Content-Type": "video/mp4"},
        )
        assert (response.status_code, response.json()["code"]) == (400, "chunk_mismatch")
    answer = send_all(server, file)
    assert stored_sha256(server, answer["id"]) == file.sha256


def test_an_empty_body_leaves_the_connection_patient(server: Server) -> None:
    empty = ChunkedFile(b"", 10)
    query = "&".join(f"{name}={value}" for name, value in empty.fields(0).items())
    with server.connect() as connection:
        connection.sendall(request_bytes(server, f"/upload?{query}", b""))
        assert read_json(connection)[0] == 200
        connection.sendall(b"GET /healthz HTT")
        time.sleep(1.2)
        connection.sendall(b"P/1.1\r\nHost: localhost\r\n\r\n")
        assert read_json(connection)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_may_change_nothing(server: Server, headers: dict[str, str]) -> None:
    refused = server.post("/upload", files={"file": ("a.mp4", b"x")}, headers=headers)
    assert refused.status_code == 403


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"}]
)
def test_pages_of_our_site_may_where_the_server_is_open(
    server: Server, headers: dict[str, str]
) -> None:
    sent = {"Origin": server.url, **headers}
    answer = server.post("/upload", files={"file": ("a.mp4", b"x")}, headers=sent)
    assert answer.status_code == 200


def test_files_are_published_across_two_mounts_of_one_file_system(
    tmp_path: Path, start_server: Callable[..., Server]
) -> None:
    staging, other = tmp_path / "staging", tmp_path / "other"
    staging.mkdir()
    other.mkdir()
    bind = ["mount", "--bind", str(other), str(staging)]
    mounted = subprocess.run(bind, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"this machine does not let this user mount: {mounted.stderr.strip()}")
    try:
        server = start_server(SLUICE_STAGING_DIR=str(staging))
        file = ChunkedFile(random_bytes(3_000_000, 54), 1_000_000)
        answer = send_all(server, file)
        assert answer["complete"] is True
        assert stored_sha256(server, answer["id"]) == file.sha256
        assert list(staging.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(staging)], check=True)


def test_a_worker_has_descriptors_for_all_its_connections() -> None:
    script = (
        "import resource, app.run.server.gunicorn_conf as c;"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE);"
        "print(soft, hard, c.threads, c.worker_connections)"
    )
    limited = ["bash", "-c", 'ulimit -n 1024; exec "$0" -c "$1"', sys.executable, script]
    output = subprocess.run(limited, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    soft, hard, threads, connections = (int(word) for word in output.split())
    assert soft == hard == 1024
    assert threads < connections < soft - 4 * threads
