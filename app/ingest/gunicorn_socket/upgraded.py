"""A connection after its `101 Switching Protocols`: bytes in both directions, no longer HTTP."""

from __future__ import annotations

import socket
from typing import Any

from gunicorn.http.body import Body

UPGRADED_KEY = "sluice.upgraded"
"""WSGI environment key that marks a request as the last one on its connection."""

TICK_SECONDS = 1.0
"""How long `receive` waits at most."""

SEND_SECONDS = 30.0
"""How long a client may leave a response of a few hundred bytes unread."""


class UpgradedConnection:
    """The client's bytes from the end of its headers on."""

    def __init__(self, connection: socket.socket, head: bytes) -> None:
        self._connection = connection
        self._head = head

    def receive(self, count: int) -> bytes | None:
        """At most `count` bytes, none at the end; None after a tick without bytes."""
        if self._head:
            found, self._head = self._head[:count], self._head[count:]
            return found
        self._connection.settimeout(TICK_SECONDS)
        try:
            return self._connection.recv(count)
        except TimeoutError:
            return None

    def send(self, data: bytes) -> None:
        """Send all of `data`; raises `OSError`."""
        self._connection.settimeout(SEND_SECONDS)
        self._connection.sendall(data)


def upgraded(environ: dict[str, Any]) -> UpgradedConnection | None:
    """The connection of a request to be answered with 101; None on other servers and over HTTP/2.

    The response's iterator uses it once the server has sent the headers; it ends with the iterator.
    """
    body: Any = environ.get("wsgi.input")
    connection = environ.get("gunicorn.socket")
    if type(body) is not Body or not isinstance(connection, socket.socket):
        return None
    if environ.get("HTTP_VERSION") == "2":
        return None
    environ[UPGRADED_KEY] = True
    return UpgradedConnection(connection, body.reader.unreader.take_buffered())
