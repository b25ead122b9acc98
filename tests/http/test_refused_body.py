"""What a client sees whose body is refused while it still sends."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from tests.live_server import Server

LENGTH = 50_000_000
"""More than the server reads of a refused body, and more than any socket buffer holds."""

BLOCK = bytes(1_000_000)


@dataclass
class Refusal:
    """A request that is refused, and why."""

    status: int
    method: str = "PATCH"
    path: str = "/tus/{id}"
    headers: dict[str, str] = field(default_factory=dict)


TUS = {
    "Tus-Resumable": "1.0.0",
    "Upload-Offset": "0",
    "Content-Type": "application/offset+octet-stream",
}

REFUSALS = [
    Refusal(409, headers={**TUS, "Upload-Offset": "5"}),
    Refusal(412, headers={**TUS, "Tus-Resumable": "0.2.2"}),
    Refusal(415, headers={**TUS, "Content-Type": "video/mp4"}),
    Refusal(400, headers={**TUS, "Upload-Offset": "five"}),
    Refusal(404, path="/tus/nothing", headers=TUS),
    Refusal(404, path="/nothing", headers=TUS),
    Refusal(405, method="PUT", path="/healthz"),
    Refusal(403, headers={**TUS, "Origin": "http://elsewhere.example"}),
]


@pytest.fixture(scope="module")
def upload_id(server: Server) -> str:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(LENGTH)}
    location = server.post("/tus/", headers=headers).headers["Location"]
    return location.rpartition("/")[2]


def begin(server: Server, refusal: Refusal, upload_id: str, framing: str) -> socket.socket:
    connection = server.connect()
    path = refusal.path.format(id=upload_id)
    lines = "".join(f"{name}: {value}\r\n" for name, value in refusal.headers.items())
    head = f"{refusal.method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{lines}{framing}"
    connection.sendall(f"{head}\r\n\r\n".encode())
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(65536).split()[1])


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: f"{r.status}")
def test_a_client_that_sends_everything_before_it_reads_gets_the_answer(
    server: Server, upload_id: str, refusal: Refusal
) -> None:
    with begin(server, refusal, upload_id, f"Content-Length: {LENGTH}") as connection:
        for _ in range(LENGTH // len(BLOCK)):
            connection.sendall(BLOCK)
        assert status_of(connection) == refusal.status


def test_with_a_body_of_unknown_length_it_gets_the_answer_too(
    server: Server, upload_id: str
) -> None:
    with begin(server, REFUSALS[0], upload_id, "Transfer-Encoding: chunked") as connection:
        for _ in range(LENGTH // len(BLOCK)):
            connection.sendall(b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK))
        connection.sendall(b"0\r\n\r\n")
        assert status_of(connection) == 409


def test_a_client_that_reads_while_it_sends_gets_the_answer_at_once(
    server: Server, upload_id: str
) -> None:
    with begin(server, REFUSALS[0], upload_id, f"Content-Length: {LENGTH}") as connection:
        connection.sendall(BLOCK)
        assert status_of(connection) == 409


def test_a_client_that_never_stops_is_cut_off(server: Server, upload_id: str) -> None:
    with begin(server, REFUSALS[0], upload_id, f"Content-Length: {2**39}") as connection:
        assert status_of(connection) == 409
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_for_ever(connection)


def send_for_ever(connection: socket.socket) -> NoReturn:
    while True:
        connection.sendall(BLOCK)
        time.sleep(0.02)
