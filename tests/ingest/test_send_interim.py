"""Interim responses on a socket: sent whole at once, or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from app.ingest.connection import send_interim

STATUS = "104 Upload Resumption Supported"
HEADERS = {"Location": "/resumable/1", "Upload-Limit": "max-size=5"}
MESSAGE = (
    b"HTTP/1.1 104 Upload Resumption Supported\r\n"
    b"Location: /resumable/1\r\nUpload-Limit: max-size=5\r\n\r\n"
)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection with small buffers: the server's, the client's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        theirs = socket.socket()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        theirs.connect(listener.getsockname())
        ours, _ = listener.accept()
        with closing(ours), closing(theirs):
            yield ours, theirs


def environ_of(connection: object, **changed: str) -> dict[str, Any]:
    """The environment that gunicorn passes to the application."""
    return {"gunicorn.socket": connection, "SERVER_PROTOCOL": "HTTP/1.1", **changed}


def test_the_whole_response_is_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    assert send_interim(environ_of(ours), STATUS, HEADERS)
    assert theirs.recv(65536) == MESSAGE


def test_old_clients_get_no_interim_responses(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    assert not send_interim(environ_of(ours, SERVER_PROTOCOL="HTTP/1.0"), STATUS, HEADERS)
    assert not send_interim(environ_of(ours, SERVER_PROTOCOL="HTTP/2.0"), STATUS, HEADERS)
    ours.shutdown(socket.SHUT_WR)
    assert theirs.recv(65536) == b""


def test_other_servers_have_no_socket_to_send_on() -> None:
    assert not send_interim({"SERVER_PROTOCOL": "HTTP/1.1"}, STATUS, HEADERS)
    assert not send_interim(environ_of(object()), STATUS, HEADERS)


def test_a_client_that_reads_nothing_does_not_block(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    sent = 0
    while send_interim(environ_of(ours), STATUS, HEADERS):
        sent += 1
        assert sent < 1_000_000
    ours.shutdown(socket.SHUT_WR)
    arrived = b"".join(iter(lambda: theirs.recv(65536), b""))
    assert arrived == MESSAGE * sent


def test_a_client_that_has_gone_is_noticed(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    reset = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    theirs.close()
    assert not send_interim(environ_of(ours), STATUS, HEADERS)
    assert not send_interim(environ_of(ours), STATUS, HEADERS)
