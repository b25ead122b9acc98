"""A request under way ends when its sender may no longer send or read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from app.access.people import find_person
from app.core.access import LOCAL, Role
from tests.access.accounts import bearer, make_key, make_project, revoke, services_of, sign_in
from tests.live_server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

LENGTH = 5_000_000
ARRIVED = 100_000
FILM_BYTES = 48_000_000
"""Far more than the buffers of a connection hold."""


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


def test_a_revoked_key_stops_its_upload_and_no_other(closed_server: Server) -> None:
    revoked, other = make_key(closed_server), make_key(closed_server)
    theirs, ours = create(closed_server, revoked), create(closed_server, other)
    with (
        patch(closed_server, theirs, revoked) as stopping,
        patch(closed_server, ours, other) as going_on,
    ):
        wait_until(
            lambda: offset(closed_server, theirs, other) >= ARRIVED, "its bytes are recorded"
        )
        revoke(closed_server, revoked)
        wait_until(lambda: has_ended(stopping), "the request of the revoked key ends")
        assert not has_ended(going_on)
    refused = closed_server.get(
        f"/api/uploads/{theirs.rpartition('/')[2]}", headers=bearer(revoked)
    )
    assert refused.status_code == 401
    assert offset(closed_server, theirs, other) >= ARRIVED


def test_a_whole_file_of_a_revoked_key_is_dropped(closed_server: Server) -> None:
    project = make_project(closed_server)
    revoked, other = (make_key(closed_server, project=project) for _ in range(2))
    head = [
        "POST /upload HTTP/1.1",
        f"Content-Length: {LENGTH}",
        "Content-Type: multipart/form-data; boundary=B",
    ]
    form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.mp4"\r\n\r\n'
    before = len(list(closed_server.staging.iterdir()))
    with begin(closed_server, head, revoked, form) as connection:
        wait_until(lambda: len(list(closed_server.staging.iterdir())) > before, "the file arrives")
        revoke(closed_server, revoked)
        wait_until(lambda: has_ended(connection), "the request of the revoked key ends")
    wait_until(
        lambda: len(list(closed_server.staging.iterdir())) == before, "its bytes are removed"
    )
    assert closed_server.get("/api/videos", headers=bearer(other)).json()["videos"] == []


@dataclass
class Download:
    """A download of which the client has read a little."""

    connection: socket.socket
    read: int = 0

    def read_rest(self) -> int:
        """Read until the server closes the connection; returns the bytes of the whole response."""
        self.connection.settimeout(120)
        try:
            while block := self.connection.recv(1 << 20):
                self.read += len(block)
        except ConnectionError:
            pass
        return self.read


@contextmanager
def downloading(server: Server, path: str, *fields: str) -> Iterator[Download]:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.settimeout(120)
        connection.connect(("127.0.0.1", server.port))
        lines = (f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Connection: close")
        connection.sendall("\r\n".join((*lines, *fields, "", "")).encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield Download(connection, 12)


@pytest.mark.parametrize("way", ["key", "removed", "blocked"])
def test_a_download_of_somebody_who_may_no_longer_is_cut(closed_server: Server, way: str) -> None:
    project = make_project(closed_server)
    key, other = (make_key(closed_server, project=project) for _ in range(2))
    sent = {"files": {"file": ("film.mp4", bytes(FILM_BYTES))}, "headers": bearer(key)}
    path = closed_server.post("/upload", **sent).json()["media"]
    cookie = sign_in(closed_server, {project: Role.VIEWER})
    shown = f"Authorization: Bearer {key}" if way == "key" else f"Cookie: sluice={cookie}"
    with (
        downloading(closed_server, path, shown) as stopping,
        downloading(closed_server, path, f"Authorization: Bearer {other}") as going_on,
    ):
        before = closed_server.log.count("ended a request of")
        if way == "key":
            revoke(closed_server, key)
        else:
            with services_of(closed_server) as services:
                identity, ctx = services.identity, services.context.acting(LOCAL)
                (member,) = identity.projects.members(project)
                if way == "removed":
                    identity.projects.remove_member(ctx, project, member.person_id)
                else:
                    person = find_person(ctx, member.person_id)
                    assert person is not None
                    identity.accounts.block(ctx, person)
        wait_until(
            lambda: closed_server.log.count("ended a request of") > before, "the download is cut"
        )
        assert stopping.read_rest() < FILM_BYTES
        assert going_on.read_rest() > FILM_BYTES
