"""A pool of HTTP connections to the object store, which sends files with sendfile.

Small requests go through `http.client`. The bytes of a part go from the kernel's page cache to the
socket, without passing through the program; over TLS they are copied in blocks.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import ssl
import struct
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from io import BufferedReader
from typing import Any

from app.core.errors import StorageFailed
from app.storage.s3.contents import Body, SpoolSlice, SpoolTooShort, blocks_of

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0

IDLE_SECONDS = 15.0
"""Idle timeout: a store that accepts and sends no byte for this long counts as dead."""

SLOWEST_BYTES_PER_SECOND = 2 * 1024 * 1024
"""The time limit of a request grows with its size, at this rate: for sending the bytes, and for the
response, since some stores first check and write all of them."""

KEPT_SECONDS = 10.0
"""How long an idle connection can be reused. S3 closes them after some 20 seconds."""

MAX_KEPT = 64
"""Most idle connections per process; any more are closed."""

MAX_REPLY_BYTES = 16 * 1024 * 1024
"""A page of a listing has 1000 entries of at most about 10 KB, mostly 300 bytes."""

_DROP_UNSENT = struct.pack("ii", 1, 0)
"""struct linger, see socket(7)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A signed request; `target` is path and query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: Body = b""
    idle_seconds: float = IDLE_SECONDS
    """How long the store may take to begin its response."""


class StoreUnreachable(Exception):
    """No response: the connection was refused or dropped, or timed out."""

    was_idle = False
    """Whether the connection had been idle: the server may have closed it just before."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Answer:
    """A response: status and headers have arrived, the body is still to be read. Must be closed."""

    response: HTTPResponse
    _connection: HTTPConnection
    _pool: Connections
    _is_reusable: bool
    """False if the store responded before it had the whole request."""
    _is_open: bool = field(default=True)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status

    def header(self, name: str) -> str:
        """Returns a header's value; empty if there is none."""
        return self.response.headers.get(name, "")

    def readinto(self, buffer: memoryview) -> int:
        """Read some bytes of the body; 0 at its end. Raises `StoreUnreachable` if it is cut off."""
        try:
            count = self.response.readinto(buffer)
        except (OSError, HTTPException) as error:
            raise StoreUnreachable from error
        if count == 0 and len(buffer) and self.response.length:
            raise StoreUnreachable
        return count

    def read(self) -> Reply:
        """Read the whole response and close it.

        Raises `StoreUnreachable` if it is cut off or over `MAX_REPLY_BYTES`.
        """
        try:
            body = self.response.read(MAX_REPLY_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise StoreUnreachable from error
        finally:
            self.close()
        if len(body) > MAX_REPLY_BYTES or self.response.length:
            raise StoreUnreachable
        headers = {name.lower(): text for name, text in self.response.headers.items()}
        return Reply(self.status, headers, body)

    def close(self) -> None:
        """Reuse the connection if the body was read to its end, else close it. Repeatable."""
        if not self._is_open:
            return
        self._is_open = False
        has_ended = self.response.isclosed() and not self.response.will_close
        if has_ended and self._is_reusable:
            self._pool.keep(self._connection)
        else:
            self.response.close()
            _abort(self._connection)


class Connections:
    """This process's connections to one server, opened on demand. Thread-safe.

    A forked process opens its own connections.
    """

    def __init__(self, scheme: str, host: str, port: int) -> None:
        self._scheme, self._host, self._port = scheme, host, port
        self._kept: deque[tuple[HTTPConnection, float]] = deque()  # Each until this time.
        self._process = os.getpid()
        weakref.finalize(self, _close, self._kept)
        self._tls: ssl.SSLContext | None = None

    def ask(self, request: Request, deadline: float) -> Answer:
        """Send a request; returns once the response headers have arrived.

        Raises `StoreUnreachable`. `deadline` is on the monotonic clock.
        """
        idle = self._take()
        try:
            return self._ask(idle or self._new(), request, deadline)
        except StoreUnreachable as error:
            error.was_idle = idle is not None
            raise

    def keep(self, connection: HTTPConnection) -> None:
        """Return an idle connection to the pool."""
        if len(self._kept) >= MAX_KEPT:
            connection.close()
        else:
            self._kept.append((connection, time.monotonic() + KEPT_SECONDS))

    def _take(self) -> HTTPConnection | None:
        if self._process != os.getpid():  # The connections belong to the parent process.
            self._process = os.getpid()
            _close(self._kept)
        with suppress(IndexError):
            while True:
                connection, until = self._kept.pop()
                sock = connection.sock
                # A readable idle connection was closed by the server. The garbage collector may
                # have closed one before the response that returned it to the pool.
                is_quiet = sock.fileno() >= 0 and not _events(sock, select.POLLIN, 0)
                if is_quiet and time.monotonic() < until:
                    return connection
                connection.close()
        return None

    def _new(self) -> HTTPConnection:
        if self._scheme == "http":
            connection = HTTPConnection(self._host, self._port)
        else:
            self._tls = self._tls or ssl.create_default_context()
            connection = HTTPSConnection(self._host, self._port, context=self._tls)
        connection.response_class = _WholeHead
        return connection

    def _ask(self, connection: HTTPConnection, request: Request, deadline: float) -> Answer:
        try:
            if connection.sock is None:
                connection.timeout = _remaining(deadline, CONNECT_SECONDS)
                connection.connect()
            is_sent = _send(connection, request, deadline)
            if not is_sent:
                _give_up(request.body)
            connection.sock.settimeout(_remaining(deadline, request.idle_seconds))
            answer = Answer(connection.getresponse(), connection, self, is_sent)
            if connection.sock is not None:  # None: the response closes the connection.
                connection.sock.settimeout(IDLE_SECONDS)
        except ssl.SSLCertVerificationError as error:
            connection.close()
            log.error("the object store's certificate is not trusted: %s", error.verify_message)
            raise StorageFailed("The object store's certificate is not trusted.") from error
        except BaseException as error:
            _abort(connection)
            _give_up(request.body)
            if isinstance(error, OSError):
                raise StoreUnreachable(str(error.strerror or error)) from error
            if isinstance(error, HTTPException):
                raise StoreUnreachable(type(error).__name__) from error
            raise
        return answer


class _WholeHead(HTTPResponse):
    """Refuses a truncated head, which http.client takes for one with fewer or shorter headers."""

    fp: Any  # None once the response has been read.

    def begin(self) -> None:
        """Read the head; raises `IncompleteRead`."""
        lines = self.fp = _Lines(self.fp)
        try:
            super().begin()
        finally:
            if self.fp is not None:
                self.fp = lines.stream
        if lines.last not in {b"\r\n", b"\n"}:
            raise IncompleteRead(lines.last)


class _Lines:
    """The part of a stream that http.client needs to read headers; keeps the last line read."""

    def __init__(self, stream: BufferedReader) -> None:
        self.stream = stream
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self.stream.readline(limit)
        return self.last

    def close(self) -> None:
        self.stream.close()


def _abort(connection: HTTPConnection) -> None:
    """Close a connection and discard the bytes of a spool that the kernel has not sent yet.

    The kernel would send the pages as they are by then: another spool may have overwritten them.
    A store on this machine may even have received the same pages, so their file is not reused; if
    it were, the CRC32C of the request would still protect the object.
    """
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_UNSENT)
    connection.close()


def _give_up(body: Body) -> None:
    if isinstance(body, SpoolSlice):
        body.give_up()


def _close(kept: deque[tuple[HTTPConnection, float]]) -> None:
    with suppress(IndexError):
        while True:
            kept.pop()[0].close()


def _remaining(deadline: float, most: float) -> float:
    """Returns the seconds until the deadline, at most `most`; raises `TimeoutError` after it."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time for the request is over")
    return min(seconds, most)


def _send(connection: HTTPConnection, request: Request, deadline: float) -> bool:
    """Send a request; False if the store responded or closed before it had the whole body."""
    body = request.body
    connection.sock.settimeout(_remaining(deadline, IDLE_SECONDS))
    connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
    for name, text in request.headers.items():
        connection.putheader(name, text)
    if isinstance(body, bytes):
        connection.endheaders(body or None)
        return True
    connection.endheaders()
    try:
        if not isinstance(connection.sock, ssl.SSLSocket):
            return _sendfile(connection.sock, body, deadline)
        for block in blocks_of(body):
            connection.sock.settimeout(_remaining(deadline, IDLE_SECONDS))
            connection.sock.sendall(block)
        return True
    except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return False  # The store may have responded before it closed: read the response.


def _sendfile(sock: socket.socket, body: SpoolSlice, deadline: float) -> bool:
    position, end = body.start, body.start + body.length
    sock.setblocking(False)
    while position < end:
        try:  # The kernel moves at most 2 GiB at once.
            sent = os.sendfile(sock.fileno(), body.descriptor, position, end - position)
        except BlockingIOError:
            seconds = _remaining(deadline, IDLE_SECONDS)
            events = _events(sock, select.POLLIN | select.POLLOUT, seconds)
            if not events:
                raise TimeoutError("the store takes no more bytes") from None
            if events & ~select.POLLOUT:
                return False
            continue
        if sent == 0:
            raise SpoolTooShort
        position += sent
    return True


def _events(sock: socket.socket, wanted: int, seconds: float) -> int:
    """Returns the `wanted` poll(2) events that happen within this time; 0 for none."""
    poll = select.poll()
    poll.register(sock, wanted)
    found = poll.poll(seconds * 1000)
    return found[0][1] if found else 0
