"""Resuming after broken connections and stalled requests."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import pytest
import requests

from tests.dropzone_client import ChunkedFile, random_bytes, send_chunk, stored_sha256
from tests.ietf_client import (
    append,
    chunked,
    create,
    look,
    read_answer,
    read_head,
    request_head,
    send,
)
from tests.live_server import Server
from tests.waiting import wait_until_read

FILE = random_bytes(4_000_000, 83)
HALF = 2_000_000
CHUNKED = ChunkedFile(FILE, 1_000_000)
SHA256 = CHUNKED.sha256

Begin = Callable[[Server, socket.socket], str]


def begin_creation(server: Server, connection: socket.socket) -> str:
    """Send half of a file in one request; the upload's id, from the interim response."""
    headers = {
        "Upload-Draft-Interop-Version": "9",
        "Upload-Complete": "?1",
        "Content-Length": str(len(FILE)),
    }
    connection.sendall(request_head(server, "POST", "/resumable/", headers) + FILE[:HALF])
    status, interim = read_head(connection)
    assert status == 104
    return interim["location"].rpartition("/")[2]


def begin_append(server: Server, connection: socket.socket) -> str:
    """Send half of an append of a whole file; the upload's id."""
    upload_id = create(server).upload_id
    length = {"Content-Length": str(len(FILE))}
    connection.sendall(_append_head(server, upload_id, length) + FILE[:HALF])
    return upload_id


def begin_chunked_append(server: Server, connection: socket.socket) -> str:
    """Send half of a file in a chunked request; the upload's id."""
    upload_id = create(server).upload_id
    head = _append_head(server, upload_id, {"Transfer-Encoding": "chunked"})
    connection.sendall(head + chunked(FILE[:HALF], 65536).removesuffix(b"0\r\n\r\n"))
    return upload_id


def _append_head(server: Server, upload_id: str, headers: dict[str, str]) -> bytes:
    fields = {
        "Upload-Complete": "?1",
        "Upload-Offset": "0",
        "Content-Type": "application/partial-upload",
    }
    return request_head(server, "PATCH", f"/resumable/{upload_id}", {**fields, **headers})


BEGINNINGS = [begin_creation, begin_append, begin_chunked_append]


def offset_of(server: Server, upload_id: str) -> int:
    return int(look(server, upload_id).headers["upload-offset"])


def end_older(server: Server, upload_id: str) -> int:
    """Ask for the offset until the older request has started, which this ends; the offset."""
    deadline = time.monotonic() + 30
    while (offset := offset_of(server, upload_id)) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return offset


def finish(server: Server, upload_id: str) -> None:
    """Resume at the offset that the server reports, and check the file.

    An older request may still have been in transit, and be served after the lookup.
    """
    offset = offset_of(server, upload_id)
    answer = append(server, upload_id, offset, FILE[offset:], is_last=True)
    while answer.status == 409:
        offset, before = int(answer.headers["upload-offset"]), offset
        assert offset > before
        answer = append(server, upload_id, offset, FILE[offset:], is_last=True)
    assert answer.status == 200
    assert stored_sha256(server, upload_id) == SHA256


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_a_connection_that_breaks_within_a_body_keeps_its_bytes(
    server: Server, begin: Begin
) -> None:
    with server.connect() as connection:
        upload_id = begin(server, connection)
    deadline = time.monotonic() + 30
    while server.get(f"/api/uploads/{upload_id}").json()["offset"] < HALF:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert offset_of(server, upload_id) == HALF
    assert look(server, upload_id).headers["upload-complete"] == "?0"
    finish(server, upload_id)


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_a_stalled_request_is_ended_by_asking_for_the_offset(server: Server, begin: Begin) -> None:
    with server.connect() as stalled:
        upload_id = begin(server, stalled)
        end_older(server, upload_id)
        finish(server, upload_id)


def test_the_reported_offset_is_the_accepted_one(server: Server) -> None:
    with server.connect() as stalled:
        upload_id = begin_creation(server, stalled)
        offset = end_older(server, upload_id)
        stalled.sendall(FILE[HALF : HALF + 1000])
        answer = append(server, upload_id, offset, FILE[offset:], is_last=True)
    assert answer.status == 200
    assert stored_sha256(server, upload_id) == SHA256


def test_an_append_takes_over_from_a_stalled_one(server: Server) -> None:
    with server.connect() as stalled:
        upload_id = begin_creation(server, stalled)
        wait_until_read(stalled)
        answer = append(server, upload_id, 0, FILE[:HALF], is_last=False)
        assert answer.status in {204, 409}
        assert 0 < int(answer.headers["upload-offset"]) <= HALF
        finish(server, upload_id)


def test_the_older_request_learns_that_a_newer_one_took_over(server: Server) -> None:
    with server.connect() as stalled:
        upload_id = begin_creation(server, stalled)
        end_older(server, upload_id)
        answer = read_answer(stalled)
        assert (answer.status, answer.json()["code"]) == (409, "writer_superseded")
        assert "upload-offset" not in answer.headers
        assert stalled.recv(1) == b""
    finish(server, upload_id)


def test_cancelling_ends_a_stalled_request(server: Server) -> None:
    with server.connect() as stalled:
        upload_id = begin_creation(server, stalled)
        assert send(server, "DELETE", f"/resumable/{upload_id}").status == 204
        assert read_answer(stalled).status in {409, 410}
    assert look(server, upload_id).status == 410


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_offsets_never_go_back_while_clients_come_and_go(server: Server, begin: Begin) -> None:
    told = 0
    with server.connect() as connection:
        upload_id = begin(server, connection)
        for _ in range(20):
            offset = offset_of(server, upload_id)
            assert told <= offset <= HALF + 20 * 5000
            told = offset
            with server.connect() as short:
                rest = {"Content-Length": str(len(FILE) - offset), "Upload-Offset": str(offset)}
                head = _append_head(server, upload_id, rest)
                short.sendall(head + FILE[offset : offset + 5000])
    finish(server, upload_id)


def test_an_upload_begun_here_is_seen_by_the_api_and_finished_by_dropzone(server: Server) -> None:
    created = create(
        server,
        FILE[:HALF],
        Upload_Length=str(len(FILE)),
        Content_Disposition='inline; filename="film.mp4"',
    )
    upload_id = created.upload_id
    state = server.get(f"/api/uploads/{upload_id}").json()
    assert (state["filename"], state["offset"]) == ("film.mp4", HALF)
    assert state["missing"] == [[HALF, len(FILE)]]
    for index in (3, 2):
        chunk = send_chunk(server, ChunkedFile(FILE, 1_000_000, key=upload_id), index)
        assert (chunk.status_code, chunk.json()["id"]) == (200, upload_id)
    assert look(server, upload_id).headers["upload-complete"] == "?1"
    assert stored_sha256(server, upload_id) == SHA256


def test_an_upload_begun_here_is_finished_by_tus(server: Server) -> None:
    upload_id = create(server, FILE[:HALF], Upload_Length=str(len(FILE))).upload_id
    answer = send(
        server,
        "PATCH",
        f"/tus/{upload_id}",
        FILE[HALF:],
        Tus_Resumable="1.0.0",
        Upload_Offset=str(HALF),
        Content_Type="application/offset+octet-stream",
    )
    assert answer.status == 204
    assert look(server, upload_id).headers["upload-complete"] == "?1"
    assert stored_sha256(server, upload_id) == SHA256


def test_an_upload_begun_by_tus_is_finished_here(server: Server) -> None:
    created = send(server, "POST", "/tus/", Tus_Resumable="1.0.0", Upload_Length=str(len(FILE)))
    assert created.status == 201
    append(server, created.upload_id, 0, FILE[:HALF], is_last=False)
    finish(server, created.upload_id)


def test_chunks_sent_by_dropzone_are_not_requested_again(server: Server) -> None:
    file = ChunkedFile(FILE, 1_000_000)
    upload_id = send_chunk(server, file, 2).json()["id"]
    assert offset_of(server, upload_id) == 0
    assert send_chunk(server, file, 0).status_code == 200
    assert offset_of(server, upload_id) == 1_000_000
    assert (
        append(server, upload_id, 1_000_000, FILE[1_000_000:HALF], is_last=False).headers[
            "upload-offset"
        ]
        == "3000000"
    )
    finish(server, upload_id)


def test_a_last_body_that_ends_before_stored_bytes_deletes_none_of_them(server: Server) -> None:
    created = send(server, "POST", "/tus/", Tus_Resumable="1.0.0", Upload_Defer_Length="1")
    upload_id = created.upload_id
    later = send(server, "PATCH", f"/filepond?patch={upload_id}", b"hello", Upload_Offset="10")
    assert later.status == 204
    refused = append(
        server,
        upload_id,
        0,
        b"abc",
        is_last=True,
        Transfer_Encoding="chunked",
        Upload_Draft_Interop_Version="9",
    )
    assert refused.status == 400
    upload = requests.get(f"{server.url}/api/uploads/{upload_id}", timeout=30).json()
    assert upload["received"] == [[0, 3], [10, 15]]


def test_an_upload_created_by_the_api_can_be_sent_here(server: Server) -> None:
    body = json.dumps({"name": "film.mp4", "size": len(FILE)}).encode()
    made = send(server, "POST", "/api/uploads", body, Content_Type="application/json")
    finish(server, made.json()["id"])
