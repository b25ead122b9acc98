"""Handling of a connection apart from reading bodies: timeouts, interim responses, reuse."""

from __future__ import annotations

import errno
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from http import HTTPStatus
from io import BufferedIOBase, RawIOBase
from typing import Any, cast

from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.wsgi import Response

from app.core.errors import UploadError
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, discard
from app.ingest.gunicorn_socket import gunicorn_source
from app.ingest.source import SOURCE_KEY, BodySource, Readable, StreamSource

DRAIN_BYTES = 32 * 1024 * 1024
DRAIN_SECONDS = 5.0
"""How much of an unwanted body is drained to reuse its connection, and for how long: one chunk."""

_DRAIN_LIMITS = BodyLimits(idle_seconds=1.0, minimum_bytes_per_second=0.0)


def timed_input(environ: dict[str, Any], stream: Readable, idle_seconds: float) -> Readable:
    """`stream`, read from `wsgi.input`, so that over TLS it raises `TimeoutError` when idle.

    A blocking TLS socket ignores the timeout inherited from its listener, and waits forever.
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
    """Send an interim response (RFC 9110, section 15.2) now; returns whether it was sent.

    Not sent to HTTP/1.0 clients, which do not support them; over HTTP/2, where many requests share
    the socket; or to a client that does not read, which would block its own upload.
    gunicorn has answered `Expect: 100-continue` before the application runs, so 100 comes first.
    """
    connection = environ.get("gunicorn.socket")
    if not isinstance(connection, socket.socket) or environ["SERVER_PROTOCOL"] != "HTTP/1.1":
        return False
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    message = "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")
    try:
        # poll() reports a TCP socket as writable once a third of its send buffer is free.
        poll = select.poll()
        poll.register(connection, select.POLLOUT)
        if not any(event == select.POLLOUT for _, event in poll.poll(0)):
            return False
        connection.sendall(message)
    except OSError:
        # Half a message would be parsed as the beginning of the response.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        return False
    return True


def bound_sending(environ: dict[str, Any], idle_seconds: float) -> None:
    """Set an idle timeout for sending the response: how long the client may read no byte of it.

    gunicorn itself would wait forever, with one thread per client. It makes the socket blocking
    again before the next request.
    """
    connection = environ.get("gunicorn.socket")
    if type(connection) is socket.socket:
        connection.settimeout(idle_seconds)


def has_left(environ: dict[str, Any]) -> bool:
    """Whether the client has closed its connection; False where that cannot be seen."""
    connection = environ.get("gunicorn.socket")
    if type(connection) is not socket.socket or environ.get("HTTP_VERSION") == "2":
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def break_off(environ: dict[str, Any]) -> None:
    """Shut down the connection while another thread reads a body from it; harmless if closed.

    That thread sees the end of the connection. Over HTTP/2 all requests of the connection end.
    """
    connection = environ.get("gunicorn.socket")
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            # The TLS object's shutdown() would let the other thread read ciphertext. With SHUT_RD
            # alone, Linux would still receive what the client sends.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


KernelSender = Callable[[RawIOBase, ByteRange], None]
"""Sends a range of a file as part of a body, and leaves the file where it stopped; raises `OSError`
if the file is shorter, or the client is gone."""


def kernel_sender(environ: dict[str, Any]) -> KernelSender | None:
    """Returns a function that sends long ranges of files with sendfile(), or None if unsupported.

    It bypasses the server, which must have sent the headers and all of the body so far: it does so
    with each block that the application yields. The server does not count the bytes, so the
    response needs a Content-Length. Only on a plain socket: over TLS and HTTP/2 bytes are framed.
    """
    connection = environ.get("gunicorn.socket")
    if type(connection) is not socket.socket or environ.get("HTTP_VERSION") == "2":
        return None

    def send(file: RawIOBase, span: ByteRange) -> None:
        sent = connection.sendfile(cast(BufferedIOBase, file), span.start, span.length)
        if sent < span.length:
            # The client would take anything sent now for the missing bytes.
            raise OSError(errno.EIO, "the file is shorter than its index says")

    return send


def drain_or_close(environ: dict[str, Any], start_response: Any) -> None:
    """Drain a short rest of the request's body, or add `Connection: close` to the response.

    Call this between the application and the first byte of its response. gunicorn 27 writes
    `Connection: keep-alive` no matter how much of the body is unread, and checks only after the
    response: it reads at most 64 KiB, closes a connection it has just promised to keep, and sends a
    second response, 400, to a body that proves malformed. Without `Connection: close` a client
    sends its next request into a connection that is being closed (RFC 9112, section 9.6).
    """
    if "gunicorn.socket" not in environ:
        # Werkzeug's server waits for up to 10 MB of the body before it closes.
        if environ.get("CONTENT_LENGTH", "").isdecimal():
            _drain(environ)
        return
    response: Any = getattr(start_response, "__self__", None)
    if type(response) is not Response or response.should_close() or _is_read(response.req.body):
        return
    has_given_up = getattr(response, "status_code", None) == HTTPStatus.REQUEST_TIMEOUT
    if has_given_up or not _drain(environ) or not _is_read(response.req.body):
        response.force_close()


def close_after_answer(start_response: Any) -> None:
    """Add `Connection: close` to the response; call this where `drain_or_close` may be called."""
    response: Any = getattr(start_response, "__self__", None)
    if type(response) is Response:
        response.force_close()


def _is_read(body: Body) -> bool:
    reader: Any = body.reader
    if body.failed:
        return False
    if isinstance(reader, LengthReader):
        return bool(reader.length == 0)
    return isinstance(reader, ChunkedReader) and reader.parser is None


def _drain(environ: dict[str, Any]) -> bool:
    """Drain the body; returns whether its end was reached within the limits."""
    source: BodySource | None = environ.get(SOURCE_KEY) or gunicorn_source(environ)
    if source is None:
        length = environ.get("CONTENT_LENGTH")
        stream = timed_input(environ, environ["wsgi.input"], _DRAIN_LIMITS.idle_seconds)
        source = StreamSource(stream, None if length is None else int(length))
    if (source.remaining or 0) > DRAIN_BYTES:
        return False
    deadline = time.monotonic() + DRAIN_SECONDS

    def stop_when_late() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError

    try:
        discard(source, limits=_DRAIN_LIMITS, watch=stop_when_late)
        source.finish(stop_when_late)
    except (UploadError, TimeoutError):
        return False
    return True


# ---- upgraded connections ------------------------------------------------------------------------

# A connection after its `101 Switching Protocols`: bytes in both directions, no longer HTTP.


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


# ---- number of connections -----------------------------------------------------------------------

# Clients are advised how many connections to use, so that there are enough for all of them. The
# worker, which counts connections, sets the advice for each request: `with advising(...)`.


MOST_CONNECTIONS = 24
"""Maximum connections that our page and client open for an upload."""

_advice: ContextVar[Callable[[], int | None]] = ContextVar("connection_advice")


def advised_connections(open_now: int, most: int) -> int | None:
    """Connections per client if `open_now` of at most `most` are open; None for no advice.

    Advice begins when half of them are open, and falls to 1 as they fill. Clients follow it, which
    frees connections: 200 that would open 24 each settle at 14 on a server with 4000.
    """
    if 2 * open_now <= most:
        return None
    return max(1, 2 * MOST_CONNECTIONS * (most - open_now) // most)


@contextmanager
def advising(advice: Callable[[], int | None]) -> Iterator[None]:
    """Use this advice for requests handled by this thread."""
    token = _advice.set(advice)
    try:
        yield
    finally:
        _advice.reset(token)


def advice_now() -> int | None:
    """How many connections the client of this request should use; None for no advice."""
    advice = _advice.get(None)
    return None if advice is None else advice()
