"""A client that has closed its connection is noticed without reading from it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from app.ingest.connection import has_left

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        yield ours, theirs


def test_a_client_that_waits_is_there(pair: Pair) -> None:
    assert not has_left({"gunicorn.socket": pair[0]})


def test_a_client_that_has_sent_its_next_request_is_there_and_nothing_of_it_is_lost(
    pair: Pair,
) -> None:
    ours, theirs = pair
    theirs.sendall(b"GET / HTTP/1.1\r\n")
    assert not has_left({"gunicorn.socket": ours})
    assert ours.recv(3) == b"GET"


def test_a_client_that_has_closed_its_connection_has_left(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    assert has_left({"gunicorn.socket": ours})


def test_where_connections_are_shared_or_unknown_nobody_is_said_to_have_left(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    assert not has_left({"gunicorn.socket": ours, "HTTP_VERSION": "2"})
    assert not has_left({})
