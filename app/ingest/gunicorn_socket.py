"""Takes a request body straight from gunicorn's socket. The only file that knows its inside.

gunicorn hands the application `wsgi.input`, a `Body` over a `LengthReader` over a
`SocketUnreader`. Reading through them copies each byte three times and waits for a silent client
without end. For a body of known length on plain HTTP/1.1 the socket can be taken over instead:

- the bytes that came with the headers are in the unreader's buffer and come first;
- what in there belongs to the next, pipelined request is given back;
- the reader's length is set to 0, so that gunicorn sees a body read to its end and keeps the
  connection alive;
- if the body is not read to its end after all, `Body.failed` makes gunicorn close the connection.

These are private names of gunicorn 27. A test against the pinned release guards them; where
anything looks different, `take_over` declines and the caller reads through `wsgi.input`.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gunicorn.http.body import Body, ChunkedReader, LengthReader

from app.domain.errors import BodyTruncated
from app.ingest.source import IDLE_TICK_SECONDS


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return struct.pack("@ll", whole, int((seconds - whole) * 1_000_000))


_TICK = _timeval(IDLE_TICK_SECONDS)


class GunicornSocketSource:
    """The rest of a request body, read with `recv_into` from the connection's own socket."""

    is_verified_at_end = False

    def __init__(self, body: Body, connection: socket.socket, head: bytes, remaining: int) -> None:
        self._body = body
        self._socket = connection
        self._head = memoryview(head)
        self._remaining = remaining
        # SO_RCVTIMEO and not settimeout(): the latter makes the descriptor non-blocking, which
        # costs a poll() for each recv and rules out splice().
        self._old_timeout = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
        if remaining:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TICK)
            body.failed = True  # Until the last byte is read, the connection cannot be reused.

    @property
    def remaining(self) -> int | None:
        """Bytes still to come."""
        return self._remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        """The bytes that came with the headers first, then one `recv_into`."""
        wanted = buffer[: self._remaining]
        if not wanted:
            return 0
        if self._head:
            return self._took(self._take_head(wanted))
        return self._receive(lambda: self._socket.recv_into(wanted))

    @property
    def can_splice(self) -> bool:
        """Whether the bytes that came with the headers have been taken."""
        return not self._head

    def splice_into(self, pipe: int, count: int) -> int | None:
        """One splice() from the socket."""
        count = min(count, self._remaining)
        return self._receive(lambda: os.splice(self._socket.fileno(), pipe, count)) if count else 0

    def finish(self) -> None:
        """Nothing follows a plain body."""

    def _take_head(self, wanted: memoryview) -> int:
        count = min(len(wanted), len(self._head))
        wanted[:count] = self._head[:count]
        self._head = self._head[count:]
        return count

    def _receive(self, call: Callable[[], int]) -> int | None:
        try:
            count = call()
        except BlockingIOError:
            return None
        except OSError as error:
            raise BodyTruncated("The connection broke while the body arrived.") from error
        if count == 0:
            raise BodyTruncated(f"The body ended {self._remaining} bytes early.")
        return self._took(count)

    def _took(self, count: int) -> int:
        self._remaining -= count
        if self._remaining == 0:
            self._release()
        return count

    def _release(self) -> None:
        """Leave the connection as gunicorn gave it, ready for the next request."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, self._old_timeout)
        self._body.failed = False


def take_over(environ: dict[str, Any]) -> GunicornSocketSource | None:
    """The request's body as a source of its socket, or None where that is not possible.

    Not possible: other servers, TLS (a splice would store ciphertext), HTTP/2 (one socket for all
    streams), chunked bodies, and a body of which something has been read already.
    """
    body: Any = environ.get("wsgi.input")
    connection = environ.get("gunicorn.socket")
    if type(body) is not Body or type(connection) is not socket.socket:
        return None
    reader = body.reader
    if type(reader) is not LengthReader or environ.get("HTTP_VERSION") == "2":
        return None
    if body.buf.tell() or connection.gettimeout() == 0.0:
        return None
    head, length = reader.unreader.take_buffered(), reader.length
    if len(head) > length:
        reader.unreader.unread(head[length:])
        head = head[:length]
    reader.length = 0
    return GunicornSocketSource(body, connection, head, length)


def trailers(environ: dict[str, Any]) -> list[tuple[str, str]] | None:
    """Header fields behind a chunked body, once it was read to its end; None on other servers."""
    body: Any = environ.get("wsgi.input")
    if type(body) is not Body or environ.get("HTTP_VERSION") == "2":
        return None
    return list(body.reader.req.trailers) if type(body.reader) is ChunkedReader else []


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
