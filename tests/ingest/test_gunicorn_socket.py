"""Guards the private names of the pinned gunicorn that taking over its socket relies on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from threading import Thread
from typing import Any

import pytest
from gunicorn import http
from gunicorn.config import Config
from gunicorn.http import wsgi

from app.core.errors import BodyTruncated
from app.ingest.gunicorn_socket import WAIT_BYTES, GunicornSocketSource, gunicorn_source
from app.ingest.slots import Slots, holding
from app.ingest.source import FEW_BYTES, BodySource


class Connection:
    """gunicorn's side of a connection, as its gthread worker handles it."""

    def __init__(self, server: socket.socket) -> None:
        self._config = Config()
        self.socket = server
        self.parser = http.get_parser(self._config, server, ("127.0.0.1", 1))

    def next_request(self) -> dict[str, Any]:
        """The WSGI environment of the next request."""
        request = next(self.parser)
        address = ("127.0.0.1", 8000)
        _, environ = wsgi.create(request, self.socket, address, address, self._config)
        return dict(environ)

    def gunicorn_source(self) -> GunicornSocketSource:
        """The next request's body, taken over from gunicorn."""
        source = gunicorn_source(self.next_request())
        assert isinstance(source, GunicornSocketSource)
        return source

    def can_be_reused(self) -> bool:
        """Whether gthread would keep the connection."""
        return bool(self.parser.finish_body())


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    """A server's connection and the client's socket; TCP, as only TCP has a low-water mark."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    with closing(ours), closing(theirs):
        yield Connection(ours), theirs


def post(body: bytes, length: int | None = None, path: str = "/") -> bytes:
    """A request as raw bytes."""
    declared = len(body) if length is None else length
    return b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (path.encode(), declared) + body


def read_all(source: BodySource) -> bytes:
    """The rest of the body."""
    buffer, body = memoryview(bytearray(1000)), b""
    while count := source.readinto(buffer):
        body += buffer[:count]
    return body


def test_the_pinned_gunicorn_is_the_one_these_tests_know() -> None:
    assert version("gunicorn").startswith("27.")


def test_bytes_that_arrived_with_the_headers_come_first(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    client.sendall(post(b"early", length=10))
    source = connection.gunicorn_source()
    assert source.remaining == 10
    client.sendall(b"later")
    assert read_all(source) == b"earlylater"
    assert source.remaining == 0
    assert connection.can_be_reused()


def test_a_pipelined_request_is_put_back(ends: tuple[Connection, socket.socket]) -> None:
    connection, client = ends
    client.sendall(post(b"first") + post(b"second!", path="/next"))
    assert read_all(connection.gunicorn_source()) == b"first"
    assert connection.can_be_reused()
    environ = connection.next_request()
    assert environ["PATH_INFO"] == "/next"
    second = gunicorn_source(environ)
    assert second is not None
    assert read_all(second) == b"second!"


def test_an_unfinished_body_closes_the_connection(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    client.sendall(post(b"part of", length=100))
    source = connection.gunicorn_source()
    source.readinto(memoryview(bytearray(3)))
    assert not connection.can_be_reused()


def test_a_silent_client_costs_a_tick_and_not_the_thread(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    client.sendall(post(b"", length=10))
    source = connection.gunicorn_source()
    assert source.readinto(memoryview(bytearray(10))) is None
    client.sendall(b"0123456789")
    assert read_all(source) == b"0123456789"


def test_a_closed_connection_is_a_truncated_body(ends: tuple[Connection, socket.socket]) -> None:
    connection, client = ends
    client.sendall(post(b"half", length=8))
    source = connection.gunicorn_source()
    client.close()
    with pytest.raises(BodyTruncated, match="4 bytes early"):
        read_all(source)
    assert not connection.can_be_reused()


def low_water_mark(connection: socket.socket) -> int:
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_a_thread_wakes_per_block_and_the_socket_is_restored_afterwards(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    before = low_water_mark(connection.socket)
    client.sendall(post(b"", length=WAIT_BYTES + 10))
    source = connection.gunicorn_source()
    assert source.readinto(memoryview(bytearray(WAIT_BYTES + 5))) is None
    assert low_water_mark(connection.socket) == WAIT_BYTES
    client.sendall(bytes(WAIT_BYTES + 10))
    assert read_all(source) == bytes(WAIT_BYTES + 10)
    assert low_water_mark(connection.socket) == before


def test_a_short_block_does_not_limit_what_may_be_under_way(
    ends: tuple[Connection, socket.socket],
) -> None:
    """On a line of 150 ms, blocks of 256 KiB would be 14 Mbit/s at best."""
    connection, client = ends
    client.sendall(post(b"", length=WAIT_BYTES))
    source = connection.gunicorn_source()
    assert source.readinto(memoryview(bytearray(WAIT_BYTES // 4))) is None
    assert low_water_mark(connection.socket) == WAIT_BYTES // 4
    limit = connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP)
    assert limit >= WAIT_BYTES


def test_a_slow_clients_few_bytes_are_returned_after_a_tick(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    client.sendall(post(b"", length=WAIT_BYTES))
    source = connection.gunicorn_source()
    client.sendall(b"few")
    buffer = memoryview(bytearray(WAIT_BYTES))
    assert source.readinto(buffer) == 3
    assert bytes(buffer[:3]) == b"few"


@pytest.mark.parametrize("wanted", [1, FEW_BYTES, FEW_BYTES + 1])
def test_a_thread_does_not_wait_for_more_than_it_wants(
    ends: tuple[Connection, socket.socket], wanted: int
) -> None:
    connection, client = ends
    client.sendall(post(b"", length=WAIT_BYTES))
    source = connection.gunicorn_source()
    assert not source.wait(wanted)
    assert low_water_mark(connection.socket) == (wanted if wanted > FEW_BYTES else 1)


def test_a_thread_gives_up_its_turn_only_while_it_waits(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, client = ends
    slots = Slots(1)
    client.sendall(post(b"", length=10))
    source = connection.gunicorn_source()

    def send_in_turn() -> None:
        with holding(slots):
            client.sendall(b"0123456789")

    with holding(slots):
        another = Thread(target=send_in_turn)
        another.start()
        while not source.wait(10):
            pass
        late = Thread(target=slots.acquire, daemon=True)
        late.start()
        late.join(0.2)
        assert late.is_alive(), "the turn is ours again"
        assert read_all(source) == b"0123456789"
    another.join()


def test_unsupported_sockets_are_not_taken_over(ends: tuple[Connection, socket.socket]) -> None:
    connection, client = ends
    client.sendall(post(b"some body"))
    environ = connection.next_request()
    for other in (
        {**environ, "wsgi.input": client.makefile("rb")},  # another server's
        {**environ, "HTTP_VERSION": "2"},
        {**environ, "gunicorn.socket": object()},  # TLS has a class of its own
    ):
        assert gunicorn_source(other) is None
    assert environ["wsgi.input"].read() == b"some body"


def test_a_partly_read_body_is_not_taken_over(ends: tuple[Connection, socket.socket]) -> None:
    connection, client = ends
    client.sendall(post(b"line one\nline two\n"))
    environ = connection.next_request()
    assert environ["wsgi.input"].readline() == b"line one\n"
    assert gunicorn_source(environ) is None
    assert environ["wsgi.input"].read() == b"line two\n"
