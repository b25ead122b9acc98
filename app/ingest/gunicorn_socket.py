"""Takes a request body straight from gunicorn's socket. The only file that knows its inside.

gunicorn hands the application `wsgi.input`, a `Body` over a `LengthReader` over a
`SocketUnreader`. Reading through them copies each byte three times and waits for a silent client
without end. On plain HTTP/1.1 the socket can be taken over instead:

- the bytes that came with the headers are in the unreader's buffer and come first;
- what in there belongs to the next, pipelined request is given back;
- the reader's length is set to 0, or a chunked reader's parser to None, so that gunicorn sees a
  body read to its end and keeps the connection alive;
- if the body is not read to its end after all, `Body.failed` makes gunicorn close the connection.

These are private names of gunicorn 27. A test against the pinned release guards them; where
anything looks different, `take_over` declines and the caller reads through `wsgi.input`.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from inspect import GEN_CREATED, getgeneratorstate
from typing import Any

from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import ParseException

from app.domain.errors import BodyStalled, BodyTruncated, ChunkMismatch, MalformedBody
from app.ingest.chunked import ChunkedDecoder
from app.ingest.client_socket import ClientSocket
from app.ingest.source import IDLE_TICK_SECONDS, Readable
from app.ingest.splice import SpliceSource
from app.ingest.stages import note_arrival

FRAMING_BYTES = 8192
"""How much is read at once where the next line of the chunked coding is expected."""

DROP_BYTES = 256 * 1024

END_SECONDS = 10.0
"""How long the end of a chunked body may take after its last byte."""

LINGER_SECONDS = 10.0
LINGER_IDLE_SECONDS = 2.0
"""How long a client that still sends is listened to behind an answer, and how long one that does
not. nginx has 30 s and 5 s, and no thread that waits."""


class GunicornSocketSource(SpliceSource):
    """The rest of a request body, taken from the connection's own socket."""

    is_verified_at_end = False

    def __init__(self, body: Body, client: ClientSocket, head: bytes, remaining: int) -> None:
        self._body = body
        self._client = client
        self._head = memoryview(head)
        self._remaining = remaining
        body.failed = remaining > 0  # Until its last byte is read, the connection is of no use.

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
        has_come = self.wait(len(wanted))
        return self._received(self._client.recv_into(wanted)) if has_come else None

    @property
    def can_splice(self) -> bool:
        """Whether the bytes that came with the headers have been taken."""
        return not self._head

    def wait(self, count: int) -> bool:
        """See `SpliceSource.wait`."""
        return self._client.wait(min(count, self._remaining))

    def splice_into(self, pipe: int, count: int) -> int:
        """One splice() from the socket."""
        count = min(count, self._remaining)
        return self._received(self._client.splice(pipe, count)) if count else 0

    def finish(self) -> None:
        """Nothing follows a plain body."""

    def _take_head(self, wanted: memoryview) -> int:
        count = min(len(wanted), len(self._head))
        wanted[:count] = self._head[:count]
        self._head = self._head[count:]
        return count

    def _received(self, count: int) -> int:
        if count == 0:
            raise BodyTruncated(f"The body ended {self._remaining} bytes early.")
        return self._took(count)

    def _took(self, count: int) -> int:
        note_arrival(count)
        self._remaining -= count
        if self._remaining == 0:
            self._release()
        return count

    def _release(self) -> None:
        """Leave the connection as gunicorn gave it, ready for the next request."""
        self._client.release()
        self._body.failed = False


class GunicornChunkedSource:
    """A chunked request body, read from the connection's own socket.

    Through gunicorn's reader a silent client could not be told from a slow one, and what arrived
    before a connection broke would be lost.
    """

    is_verified_at_end = False

    def __init__(self, body: Body, client: ClientSocket, remaining: int | None) -> None:
        self._body = body
        self._client = client
        self._remaining = remaining
        self._head = body.reader.req.unreader.take_buffered()
        self._decoder = ChunkedDecoder()
        body.failed = True

    @property
    def remaining(self) -> int | None:
        """Bytes still to come, where the request has told elsewhere."""
        return self._remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Payload that came along with the coding's lines first, then one `recv_into`."""
        wanted = buffer if self._remaining is None else buffer[: self._remaining]
        if not wanted:
            return 0
        while not self._decoder.data_left:
            if self._decoder.has_ended:
                return self._ended()
            if not self._feed():
                return None
        return self._take(wanted)

    def finish(self) -> None:
        """Read the end of the coding; raises `ChunkMismatch` where more bytes come instead."""
        self._remaining, probe, waited = None, memoryview(bytearray(1)), 0.0
        while (count := self.readinto(probe)) != 0:
            if count:
                raise ChunkMismatch("The body is longer than it should be.")
            waited += IDLE_TICK_SECONDS
            if waited > END_SECONDS:
                raise BodyStalled("The end of the body does not come.")

    def _feed(self) -> bool:
        """Hand the decoder what comes next; False after a tick without anything."""
        data, self._head = self._head, b""
        if not data:
            if not self._client.wait(1):
                return False
            data = self._client.recv(FRAMING_BYTES)
        if not data:
            raise BodyTruncated("The body ended in the middle of its coding.")
        self._decoder.feed(data)
        return True

    def _take(self, wanted: memoryview) -> int | None:
        count = self._decoder.take(wanted)
        if not count:
            wanted = wanted[: self._decoder.data_left]
            if not self._client.wait(len(wanted)):
                return None
            count = self._client.recv_into(wanted)
            if not count:
                raise BodyTruncated("The body ended in the middle of a chunk.")
            self._decoder.passed(count)
        note_arrival(count)
        if self._remaining is not None:
            self._remaining -= count
        return count

    def _ended(self) -> int:
        if self._body.failed:
            self._release()
        if self._remaining:
            raise ChunkMismatch(f"The body is {self._remaining} bytes too short.")
        return 0

    def _release(self) -> None:
        """Leave the connection as gunicorn would after it had read the body itself."""
        reader, trailers = self._body.reader, self._decoder.trailers
        if trailers:
            try:
                reader.req.trailers = reader.req.parse_headers(trailers, from_trailer=True)
            except ParseException as error:
                raise MalformedBody("The trailers of the body are malformed.") from error
        reader.parser = None
        reader.req.unreader.unread(self._decoder.leftover)
        self._client.release()
        self._body.failed = False


Source = GunicornSocketSource | GunicornChunkedSource


def take_over(environ: dict[str, Any], expected_length: int | None = None) -> Source | None:
    """The request's body as a source of its socket, or None where that is not possible.

    Not possible: other servers, TLS (a splice would store ciphertext), HTTP/2 (one socket for all
    streams), and a body of which something has been read already. `expected_length` is what a
    chunked body should bring, where something else tells.
    """
    body: Any = environ.get("wsgi.input")
    connection = environ.get("gunicorn.socket")
    if type(body) is not Body or type(connection) is not socket.socket:
        return None
    if body.buf.tell() or connection.gettimeout() == 0.0 or environ.get("HTTP_VERSION") == "2":
        return None
    client = ClientSocket(connection)
    if type(body.reader) is LengthReader:
        return _take_over_length(body, client)
    if type(body.reader) is ChunkedReader and _is_untouched(body.reader):
        return GunicornChunkedSource(body, client, expected_length)
    return None


def _take_over_length(body: Body, client: ClientSocket) -> GunicornSocketSource:
    reader = body.reader
    head, length = reader.unreader.take_buffered(), reader.length
    if len(head) > length:
        reader.unreader.unread(head[length:])
        head = head[:length]
    reader.length = 0
    return GunicornSocketSource(body, client, head, length)


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


def _is_untouched(reader: ChunkedReader) -> bool:
    return reader.parser is not None and getgeneratorstate(reader.parser) == GEN_CREATED


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


def linger(environ: dict[str, Any]) -> None:
    """After the answer to a body that was not read to its end: drop what still comes, for a while.

    Closed at once, the connection would be reset, and the client lose the answer with it
    (RFC 9112, section 9.6). gunicorn itself takes 64 KiB, less than a client has on its way.
    """
    connection: Any = environ.get("gunicorn.socket")
    if type(connection) is not socket.socket or not getattr(environ["wsgi.input"], "failed", False):
        return
    deadline, dropped = time.monotonic() + LINGER_SECONDS, bytearray(DROP_BYTES)
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        connection.settimeout(LINGER_IDLE_SECONDS)
        while time.monotonic() < deadline and connection.recv_into(dropped):
            pass


def bound_sending(environ: dict[str, Any], idle_seconds: float) -> None:
    """Give up on a client that takes no byte of the response for so long.

    gunicorn itself would wait for ever, one thread a client. It makes the socket blocking again
    before the next request.
    """
    connection = environ.get("gunicorn.socket")
    if type(connection) is socket.socket:
        connection.settimeout(idle_seconds)
