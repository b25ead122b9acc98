"""What is done with a client's connection besides reading a body."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from app.ingest.source import Readable


def timed_input(environ: dict[str, Any], stream: Readable, idle_seconds: float) -> Readable:
    """`stream`, read from `wsgi.input`, so that over TLS it raises `TimeoutError` after a silence.

    A TLS socket that blocks overlooks the time-out it has from its listener, and waits for ever.
    """
    connection = environ.get("gunicorn.socket")
    if not isinstance(connection, ssl.SSLSocket) or environ.get("HTTP_VERSION") == "2":
        return stream
    return _TimedStream(stream, connection, idle_seconds)


class _TimedStream:
    def __init__(self, stream: Readable, connection: ssl.SSLSocket, idle_seconds: float) -> None:
        self._stream = stream
        self._connection = connection
        self._idle_seconds = idle_seconds

    def read(self, size: int, /) -> bytes | None:
        before = self._connection.gettimeout()
        self._connection.settimeout(self._idle_seconds)
        try:
            return self._stream.read(size)
        finally:
            self._connection.settimeout(before)


def send_interim(environ: dict[str, Any], status: str, headers: Mapping[str, str]) -> bool:
    """Send an interim response (RFC 9110, section 15.2) now; whether it was sent.

    It is not to clients of HTTP/1.0, which do not know them, over HTTP/2, where many requests
    share the socket, and to a client that takes nothing, which would stop its own upload.
    gunicorn has answered `Expect: 100-continue` before the application runs, so 100 comes first.
    """
    connection = environ.get("gunicorn.socket")
    if not isinstance(connection, socket.socket) or environ["SERVER_PROTOCOL"] != "HTTP/1.1":
        return False
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    message = "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")
    try:
        if not _has_room(connection):
            return False
        connection.sendall(message)
    except OSError:
        # Half a message would be read as the beginning of the answer.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        return False
    return True


def _has_room(connection: socket.socket) -> bool:
    """Whether a third of the send buffer is free, as poll() has it for TCP."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    return any(event == select.POLLOUT for _, event in poll.poll(0))


def bound_sending(environ: dict[str, Any], idle_seconds: float) -> None:
    """Give up on a client that takes no byte of the response for so long.

    gunicorn itself would wait for ever, one thread a client. It makes the socket blocking again
    before the next request.
    """
    connection = environ.get("gunicorn.socket")
    if type(connection) is socket.socket:
        connection.settimeout(idle_seconds)
