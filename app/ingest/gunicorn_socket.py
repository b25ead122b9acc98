"""Request bodies, read directly from gunicorn's socket.

gunicorn's own `wsgi.input` copies each byte three times and waits forever for a silent client.
This file and `connection.py` are the only ones that use gunicorn's internals.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import termios
from inspect import GEN_CREATED, getgeneratorstate
from typing import Any

from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import ParseException

from app.core.errors import BodyStalled, BodyTruncated, ChunkMismatch, MalformedBody
from app.ingest.chunked import ChunkedDecoder
from app.ingest.slots import without_slot
from app.ingest.source import FEW_BYTES, IDLE_TICK_SECONDS, SpliceSource, Watch, no_watch
from app.ingest.stages import Stage, note_arrival

# ---- client's socket -----------------------------------------------------------------------------

WAIT_BYTES = 1024 * 1024
"""A thread is not woken for less, unless it wants less or a tick is over. A client on a slow link
sends a packet or two at a time, and each would cost as much as a full block. Compared with waiting
for 256 KiB, 20 MiB over loopback took 0.93 of the CPU time, and 20 MB over 100 ms 0.72. If a
receive buffer (`tcp_rmem`) cannot grow beyond 1 MiB, connections with a round-trip time of 40 ms
lose a third of their rate; with 6 MiB, Linux's default, they lose nothing."""

BROKEN = "The connection broke while the body arrived."

_TICK_MILLISECONDS = int(IDLE_TICK_SECONDS * 1000)


class ClientSocket:
    """A blocking socket that is read only when there is something to read.

    The socket stays blocking: settimeout() would make its descriptor non-blocking, which rules
    out splice(). A blocking recv() would wait for as many bytes as poll() was asked to.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._awaited = 1
        self._is_wide = False
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def wait(self, count: int) -> bool:
        """Whether bytes, or the end of the connection, arrived within a tick.

        `count` is how many bytes are wanted; the client is going to send all of them.
        """
        self._await_bytes(min(WAIT_BYTES, count) if count > FEW_BYTES else 1)
        if self._poll.poll(0):
            return True
        with Stage.RECEIVE, without_slot():
            found = self._poll.poll(_TICK_MILLISECONDS)
        return bool(found) or self._has_any

    def recv(self, count: int) -> bytes:
        """At most `count` of the bytes waited for; none at the end of the connection."""
        try:
            return self._socket.recv(count, socket.MSG_DONTWAIT)
        except OSError as error:
            raise BodyTruncated(BROKEN) from error

    def recv_into(self, buffer: memoryview) -> int:
        """Like `recv`, into a buffer."""
        try:
            return self._socket.recv_into(buffer, 0, socket.MSG_DONTWAIT)
        except OSError as error:
            raise BodyTruncated(BROKEN) from error

    def splice(self, pipe: int, count: int) -> int:
        """Like `recv`, into a pipe."""
        try:
            return os.splice(self._socket.fileno(), pipe, count)
        except OSError as error:
            raise BodyTruncated(BROKEN) from error

    def release(self) -> None:
        """Make the socket readable again at a single byte."""
        self._await_bytes(1)

    def _await_bytes(self, count: int) -> None:
        if count == self._awaited:
            return
        if count > FEW_BYTES and not self._is_wide:
            self._set_low_water_mark(WAIT_BYTES)
            self._is_wide = True
        self._set_low_water_mark(count)
        self._awaited = count

    def _set_low_water_mark(self, count: int) -> None:
        """Set how many bytes make the socket readable (SO_RCVLOWAT).

        If the receive window is smaller, the kernel sets its limit to `count` (`tcp_set_rcvlowat`).
        Up to Linux 6.15 the limit then grows as bytes arrive; later versions leave it there while
        the bytes wait to be read. A form that is read in blocks of 256 KiB got no more than one of
        them for each round trip, so the limit is raised to `WAIT_BYTES` first.
        """
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    @property
    def _has_any(self) -> bool:
        nothing = bytes(4)
        return fcntl.ioctl(self._socket, termios.FIONREAD, nothing) != nothing


# ---- body of known length ------------------------------------------------------------------------


class GunicornSocketSource(SpliceSource):
    """The rest of a request body, read from the connection's own socket."""

    is_verified_at_end = False

    def __init__(self, body: Body, client: ClientSocket, head: bytes, remaining: int) -> None:
        self._body = body
        self._client = client
        self._head = memoryview(head)
        self._remaining = remaining
        body.failed = remaining > 0  # Until its last byte is read, the connection cannot be reused.

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
            count = min(len(wanted), len(self._head))
            wanted[:count] = self._head[:count]
            self._head = self._head[count:]
            return self._took(count)
        if not self._client.wait(len(wanted)):
            return None
        return self._took(self._client.recv_into(wanted))

    @property
    def can_splice(self) -> bool:
        """Whether the bytes that came with the headers have been taken."""
        return not self._head

    def wait(self, count: int) -> bool:
        """Wait for bytes that are still to come."""
        return self._client.wait(min(count, self._remaining))

    def splice_into(self, pipe: int, count: int) -> int:
        """One splice() from the socket."""
        count = min(count, self._remaining)
        return self._took(self._client.splice(pipe, count)) if count else 0

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Does nothing: nothing follows a body of known length."""

    def _took(self, count: int) -> int:
        if count == 0:
            raise BodyTruncated(f"The body ended {self._remaining} bytes early.")
        note_arrival(count)
        self._remaining -= count
        if self._remaining == 0:  # Restore gunicorn's state, ready for the next request.
            self._client.release()
            self._body.failed = False
        return count


# ---- chunked body --------------------------------------------------------------------------------

FRAMING_BYTES = 8192
"""Size of a read when the next line of the chunked coding is expected."""

END_SECONDS = 10.0
"""How long the end of a chunked body may take after its last byte."""


class GunicornChunkedSource:
    """A chunked request body, read from the connection's own socket.

    gunicorn's reader cannot distinguish an idle client from a slow one, and loses the bytes that
    arrived before a connection broke.
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
        """Bytes still to come, if another header says so, or all have been read."""
        return self._remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Payload that was read along with the coding's lines first, then one `recv_into`."""
        wanted = buffer if self._remaining is None else buffer[: self._remaining]
        if not wanted:
            return 0
        while not self._decoder.data_left:
            if self._decoder.has_ended:
                return self._end()
            if not self._feed():
                return None
        return self._take(wanted)

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Read the end of the coding; raises `ChunkMismatch` if more bytes come instead."""
        self._remaining, probe, waited = None, memoryview(bytearray(1)), 0.0
        while (count := self.readinto(probe)) != 0:
            if count:
                raise ChunkMismatch("The body is longer than it should be.")
            watch()
            waited += IDLE_TICK_SECONDS
            if waited > END_SECONDS:
                raise BodyStalled("The end of the body did not arrive.")

    def _feed(self) -> bool:
        """Feed the next bytes to the decoder; False after a tick without any."""
        self._decoder.require_intact()
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

    def _end(self) -> int:
        """The end of the body: restores the connection to gunicorn's state at the first call."""
        if self._body.failed:
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
        if self._remaining:
            raise ChunkMismatch(f"The body is {self._remaining} bytes too short.")
        self._remaining = 0
        return 0


# ---- take-over -----------------------------------------------------------------------------------

# gunicorn hands the application a `Body` over a `LengthReader` over a `SocketUnreader`. Instead:
#
# - the bytes that came with the headers are in the unreader's buffer and come first;
# - bytes in it that belong to the next, pipelined request are put back;
# - the reader's length is set to 0, or a chunked reader's parser to None, so that gunicorn sees a
#   body read to its end and keeps the connection alive;
# - if the body is not read to its end after all, `Body.failed` makes gunicorn close the connection.
#
# These are private names of gunicorn 27, guarded by a test against the pinned release. If anything
# looks different, the caller reads through `wsgi.input`.


Source = GunicornSocketSource | GunicornChunkedSource


def gunicorn_source(environ: dict[str, Any], expected_length: int | None = None) -> Source | None:
    """The request's body read from its socket, or None if that is not possible.

    Not possible with other servers, TLS (a splice would store ciphertext), HTTP/2 (one socket for
    all streams), or a body that has been partly read. `expected_length` is the length of a chunked
    body, if another header gives it.
    """
    body: Any = environ.get("wsgi.input")
    connection = environ.get("gunicorn.socket")
    if type(body) is not Body or type(connection) is not socket.socket:
        return None
    if body.buf.tell() or connection.gettimeout() == 0.0 or environ.get("HTTP_VERSION") == "2":
        return None
    client, reader = ClientSocket(connection), body.reader
    if type(reader) is LengthReader:
        head, length = reader.unreader.take_buffered(), reader.length
        if len(head) > length:
            reader.unreader.unread(head[length:])
            head = head[:length]
        reader.length = 0
        return GunicornSocketSource(body, client, head, length)
    is_chunked = type(reader) is ChunkedReader and reader.parser is not None
    if is_chunked and getgeneratorstate(reader.parser) == GEN_CREATED:  # Not read yet.
        return GunicornChunkedSource(body, client, expected_length)
    return None


def trailers(environ: dict[str, Any]) -> list[tuple[str, str]] | None:
    """Trailer fields of a chunked body that has been read to its end; None on other servers."""
    body: Any = environ.get("wsgi.input")
    if type(body) is not Body or environ.get("HTTP_VERSION") == "2":
        return None
    return list(body.reader.req.trailers) if type(body.reader) is ChunkedReader else []
