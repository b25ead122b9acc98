"""Chunked bodies on the pinned gunicorn's socket: its private names, and what follows a body."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from app.core.errors import BodyTruncated, ChunkMismatch, MalformedBody
from app.ingest.gunicorn_socket import GunicornChunkedSource, gunicorn_source, trailers
from app.ingest.source import SOURCE_KEY
from app.run.server.gunicorn_worker import SlotTaking
from tests.ingest.test_gunicorn_socket import Connection

HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\n\r\n"

Ends = tuple[Connection, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A server's connection and the client's socket."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        yield Connection(ours), theirs


def chunked_source(connection: Connection, length: int | None = None) -> GunicornChunkedSource:
    """The next request's body, taken over from gunicorn."""
    source = gunicorn_source(connection.next_request(), length)
    assert isinstance(source, GunicornChunkedSource)
    return source


def read(source: GunicornChunkedSource) -> bytes:
    """Everything until the end, or until a tick without bytes."""
    buffer, body = memoryview(bytearray(1000)), b""
    while count := source.readinto(buffer):
        body += buffer[:count]
    return body


def test_the_payload_is_decoded_and_the_connection_stays_usable(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n" + NEXT)
    source = chunked_source(connection)
    assert source.remaining is None
    assert read(source) == b"firstsecond"
    source.finish()
    assert connection.can_be_reused()
    assert connection.next_request()["PATH_INFO"] == "/next"


def test_a_chunk_larger_than_the_buffer_is_read_from_the_socket(ends: Ends) -> None:
    connection, client = ends
    payload = bytes(range(256)) * 200
    client.sendall(HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(payload), payload) + NEXT)
    source = chunked_source(connection)
    assert read(source) == payload
    assert connection.can_be_reused()
    assert connection.next_request()["PATH_INFO"] == "/next"


@pytest.mark.parametrize("sent", [b"", b"5", b"5\r\nfir", b"5\r\nfirst", b"5\r\nfirst\r\n"])
def test_a_silent_client_costs_a_tick_wherever_it_stops(ends: Ends, sent: bytes) -> None:
    connection, client = ends
    whole = b"5\r\nfirst\r\n0\r\n\r\n"
    client.sendall(HEAD + sent)
    source = chunked_source(connection)
    first = read(source)
    assert source.readinto(memoryview(bytearray(1000))) is None
    client.sendall(whole.removeprefix(sent))
    assert first + read(source) == b"first"
    assert connection.can_be_reused()


def test_bytes_from_before_the_connection_broke_are_returned(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirst\r\n6\r\nsec")
    client.close()
    source = chunked_source(connection)
    buffer = memoryview(bytearray(1000))
    assert bytes(buffer[: source.readinto(buffer)]) == b"first"
    assert bytes(buffer[: source.readinto(buffer)]) == b"sec"
    with pytest.raises(BodyTruncated):
        source.readinto(buffer)
    assert not connection.can_be_reused()


def test_malformed_chunks_close_the_connection(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirstX\r\n0\r\n\r\n")
    source = chunked_source(connection)
    with pytest.raises(MalformedBody):
        read(source)
    assert not connection.can_be_reused()


def test_a_body_longer_than_announced_is_a_mismatch(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirst\r\n0\r\n\r\n")
    source = chunked_source(connection, 3)
    assert read(source) == b"fir"
    with pytest.raises(ChunkMismatch, match="longer"):
        source.finish()


def test_a_body_shorter_than_announced_is_a_mismatch(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirst\r\n0\r\n\r\n")
    source = chunked_source(connection, 6)
    with pytest.raises(ChunkMismatch, match="1 bytes too short"):
        read(source)
    assert connection.can_be_reused()


def test_trailers_are_available_once_the_body_was_read(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirst\r\n0\r\nChecksum: abc\r\n\r\n" + NEXT)
    environ = connection.next_request()
    source = gunicorn_source(environ, 5)
    assert isinstance(source, GunicornChunkedSource)
    assert read(source) == b"first"
    assert trailers(environ) == []
    source.finish()
    assert trailers(environ) == [("CHECKSUM", "abc")]
    assert connection.next_request()["PATH_INFO"] == "/next"


@pytest.mark.parametrize("field", [b"no colon", b"Bad Name: 1", b"Content-Length: 5\r\n folded"])
def test_malformed_trailers_close_the_connection(ends: Ends, field: bytes) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirst\r\n0\r\n" + field + b"\r\n\r\n")
    source = chunked_source(connection)
    with pytest.raises(MalformedBody):
        read(source)
    assert not connection.can_be_reused()


def test_a_partly_read_body_is_not_taken_over(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"9\r\nfirst\nend\r\n0\r\n\r\n")
    environ = connection.next_request()
    assert environ["wsgi.input"].readline() == b"first\n"
    assert gunicorn_source(environ) is None
    assert environ["wsgi.input"].read() == b"end"


def test_a_worker_that_stops_breaks_off_bodies_but_not_their_answers(ends: Ends) -> None:
    connection, client = ends
    client.sendall(HEAD + b"5\r\nfirst\r\n0\r\n\r\n" + HEAD + b"5\r\nfir")
    connection.socket.settimeout(30)

    def store(environ: dict[str, Any], _start: object) -> list[bytes]:
        source = environ[SOURCE_KEY] = gunicorn_source(environ)
        assert isinstance(source, GunicornChunkedSource)
        read(source)
        slots.break_off_bodies()
        connection.socket.sendall(b"answer")
        return []

    slots = SlotTaking(store, 1, log=lambda *_: None, is_ending=lambda: False)
    slots(connection.next_request(), lambda *_: lambda _: None)
    assert client.recv(100) == b"answer"
    assert connection.can_be_reused()
    with pytest.raises(BrokenPipeError):
        slots(connection.next_request(), lambda *_: lambda _: None)
