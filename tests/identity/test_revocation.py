"""A request under way ends when its sender may no longer send."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.identity.accounts import ACCOUNTS, bearer, identity_of, make_key
from tests.live_server import Server, running_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

LENGTH = 5_000_000
ARRIVED = 100_000


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with accounts."""
    with running_server(tmp_path_factory.mktemp("closed"), **ACCOUNTS) as server:
        yield server


def begin(server: Server, head: list[str], key: str, body: bytes = b"") -> socket.socket:
    """A connection on which the first bytes of a long body have been sent."""
    connection = server.connect()
    lines = [*head, f"Host: 127.0.0.1:{server.port}", f"Authorization: Bearer {key}", "", ""]
    connection.sendall("\r\n".join(lines).encode() + body + bytes(ARRIVED))
    return connection


def patch(server: Server, path: str, key: str) -> socket.socket:
    return begin(
        server,
        [
            f"PATCH {path} HTTP/1.1",
            "Tus-Resumable: 1.0.0",
            "Upload-Offset: 0",
            f"Content-Length: {LENGTH}",
            "Content-Type: application/offset+octet-stream",
        ],
        key,
    )


def create(server: Server, key: str) -> str:
    headers = {**bearer(key), "Tus-Resumable": "1.0.0", "Upload-Length": str(LENGTH)}
    answer = server.post("/tus/", headers=headers)
    assert answer.status_code == 201
    return "/tus/" + answer.headers["Location"].rpartition("/")[2]


def offset(server: Server, path: str, key: str) -> int:
    upload = server.get(f"/api/uploads/{path.rpartition('/')[2]}", headers=bearer(key))
    received: int = upload.json()["offset"]
    return received


def revoke(server: Server, key: str) -> None:
    with identity_of(server) as identity:
        caller = identity.keys.caller(key)
        assert caller is not None
        identity.keys.revoke(caller.project, caller.id)


def has_ended(connection: socket.socket) -> bool:
    """Whether the server has closed the connection or answered, while the client goes on."""
    connection.setblocking(False)
    try:
        connection.send(b"x" * 100)
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_revoked_key_stops_its_upload_and_no_other(closed: Server) -> None:
    revoked, other = make_key(closed), make_key(closed)
    theirs, ours = create(closed, revoked), create(closed, other)
    with patch(closed, theirs, revoked) as stopping, patch(closed, ours, other) as going_on:
        wait_until(lambda: offset(closed, theirs, other) >= ARRIVED, "its bytes are recorded")
        revoke(closed, revoked)
        wait_until(lambda: has_ended(stopping), "the request of the revoked key ends")
        assert not has_ended(going_on)
    refused = closed.get(f"/api/uploads/{theirs.rpartition('/')[2]}", headers=bearer(revoked))
    assert refused.status_code == 401
    assert offset(closed, theirs, other) >= ARRIVED


def test_a_whole_file_of_a_revoked_key_is_dropped(closed: Server) -> None:
    revoked, other = make_key(closed), make_key(closed)
    head = [
        "POST /upload HTTP/1.1",
        f"Content-Length: {LENGTH}",
        "Content-Type: multipart/form-data; boundary=B",
    ]
    form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.mp4"\r\n\r\n'
    before = len(list(closed.staging.iterdir()))
    with begin(closed, head, revoked, form) as connection:
        wait_until(lambda: len(list(closed.staging.iterdir())) > before, "the file arrives")
        revoke(closed, revoked)
        wait_until(lambda: has_ended(connection), "the request of the revoked key ends")
    wait_until(lambda: len(list(closed.staging.iterdir())) == before, "its bytes are removed")
    assert closed.get("/api/videos", headers=bearer(other)).json()["videos"] == []
