"""Which requests under way are ended, and which connections are left alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from app.core.access import Reach, Scope
from app.core.errors import NotAllowed, NotSignedIn, ServerBusy, UploadGone
from app.http.access import ActiveRequests

BEFORE = Scope("films", "key:1", Reach.ALL, {"news": Reach.OWN})


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The server's end of a connection, and the client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        yield ours, theirs


def is_open(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def refused(error: Exception) -> Scope:
    raise error


@pytest.mark.parametrize(
    "error", [NotSignedIn("revoked"), NotAllowed("lowered"), UploadGone("closed")], ids=repr
)
def test_a_request_that_would_be_refused_now_is_ended(pair: Any, error: Exception) -> None:
    under_way, environ = ActiveRequests(), {"gunicorn.socket": pair[0]}
    under_way.begin(environ, BEFORE, lambda: refused(error))
    under_way.look(lasting_seconds=0)
    assert not is_open(pair[1])


def test_a_fault_of_the_server_ends_nothing(pair: Any) -> None:
    under_way, environ = ActiveRequests(), {"gunicorn.socket": pair[0]}
    under_way.begin(environ, BEFORE, lambda: refused(ServerBusy("the database is locked")))
    under_way.look(lasting_seconds=0)
    assert is_open(pair[1])


def test_a_request_that_cannot_be_checked_protects_no_other(pair: Any) -> None:
    under_way, environ = ActiveRequests(), {"gunicorn.socket": pair[0]}
    unchecked: dict[str, Any] = {}
    under_way.begin(unchecked, BEFORE, lambda: refused(RuntimeError("a bug")))
    under_way.begin(environ, BEFORE, lambda: refused(NotSignedIn("revoked")))
    under_way.look(lasting_seconds=0)
    assert not is_open(pair[1])
    under_way.end(unchecked)  # Its thread would log that once a second into other tests.


def test_the_next_request_on_a_connection_is_left_alone(pair: Any) -> None:
    under_way, environ = ActiveRequests(), {"gunicorn.socket": pair[0]}

    def end_meanwhile() -> Scope:
        under_way.end(environ)
        raise NotSignedIn("revoked")

    under_way.begin(environ, BEFORE, end_meanwhile)
    under_way.look(lasting_seconds=0)
    assert is_open(pair[1])


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (BEFORE, True),
        (Scope("news", "key:1", Reach.ALL, {"films": Reach.ALL}), True),
        (Scope("films", "key:1", Reach.ALL, {"news": Reach.OWN, "more": Reach.ALL}), True),
        (Scope("films", "key:1", Reach.OWN, {"news": Reach.OWN}), False),
        (Scope("films", "key:1", Reach.ALL), False),
    ],
    ids=["same", "other project chosen, more reach", "new member", "lowered", "removed"],
)
def test_a_caller_with_less_reach_is_ended(now: Scope, expected: bool) -> None:
    assert now.includes(BEFORE) is expected
