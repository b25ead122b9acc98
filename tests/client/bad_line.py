"""A bad line to a server: a proxy that cuts, resets, stalls, slows down and answers itself."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

BLOCK = 64 * 1024

HOLD_SECONDS = 120.0
"""What is held longer than this fails the test."""


class Broken(Exception):
    """The proxy ends the connection on purpose."""


@dataclass
class Request:
    """One request through the proxy; `body` and `answer` count their bytes."""

    method: str
    path: str
    length: int
    body: int = 0
    status: int = 0
    answer: int = 0
    headers: str = ""


Fault = Callable[["Line", Request], None]
"""Looks at a request, and at each block of it, and may end it by raising `Broken`."""


@dataclass
class Line:
    """One connection, and what faults may do to it."""

    client: socket.socket
    upstream: socket.socket
    proxy: BadLine
    is_stalled: bool = False

    def cut(self) -> None:
        raise Broken

    def cut_at_server_first(self) -> None:
        """Cut, and let the client see it only once the server has recorded what it received."""
        _end(self.upstream)
        raise Broken

    def reset(self) -> None:
        """End with RST and not with FIN."""
        for end in (self.client, self.upstream):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Broken

    def reset_after_server(self) -> None:
        """End the server's end, and reset the client's once the server has recorded what came."""
        _end(self.upstream)
        self.reset()

    def stall(self) -> None:
        """Stay silent until the client leaves or the proxy ends."""
        self.client.settimeout(0.1)
        while not self.proxy.is_closed:
            with suppress(TimeoutError):
                if not self.client.recv(BLOCK, socket.MSG_PEEK):
                    break
                time.sleep(0.02)
        raise Broken

    def answer(self, status: str, *headers: str, body: str = "no") -> None:
        """Answer instead of the server, as a proxy does, and close."""
        head = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close"]
        self.client.sendall("\r\n".join([*head, "", body]).encode())
        # Read what the client still sends for a moment, so that it can read the answer.
        self.client.settimeout(0.5)
        with suppress(OSError):
            while self.client.recv(BLOCK):
                pass
        raise Broken


@dataclass
class BadLine:
    """Listens on `port`. Faults apply to every request until they are removed."""

    target: int
    requests: list[Request] = field(default_factory=list)
    on_head: Fault | None = None
    on_body: Fault | None = None
    on_answer: Fault | None = None
    garble: Callable[[Request, bytes], bytes] | None = None
    bytes_per_second: float = float("inf")
    is_closed: bool = False

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_quiet(self) -> bool:
        """Whether no request is running or waits to be accepted any more, on the server either."""
        with self._lock:
            return not self._ends and not self._has_caller(0)

    def heal(self) -> None:
        """Make it a good line, and reset its counts."""
        self.on_head = self.on_body = self.on_answer = self.garble = None
        self.bytes_per_second = float("inf")
        self.requests = []

    def sent(self, path: str = "/upload") -> int:
        """Bytes of the bodies sent to a path."""
        return sum(request.body for request in self.requests if request.path.startswith(path))

    def received(self, path: str = "/media") -> int:
        """Bytes of the answers received from a path."""
        return sum(request.answer for request in self.requests if request.path.startswith(path))

    def close(self) -> None:
        self.is_closed = True
        with self._lock:
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.is_closed:
            if self._has_caller(0.1):
                with self._lock:  # `is_quiet` sees a connection as waiting or as accepted.
                    client, _ = self._listener.accept()
                    upstream = socket.socket()
                    self._ends |= {client, upstream}
                client.settimeout(None)
                self._start(self._serve, client, upstream)

    def _has_caller(self, seconds: float) -> bool:
        return bool(select.select([self._listener], [], [], seconds)[0])

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        with upstream:
            with client, suppress(Broken, OSError):
                upstream.connect(("127.0.0.1", self.target))
                while not self.is_closed:
                    self._relay(Line(client, upstream, self))
            with suppress(OSError):
                _end(upstream)
            with self._lock:
                self._ends -= {client, upstream}

    def _relay(self, line: Line) -> None:
        head, rest = _read_head(line.client)
        method, path, _ = head.split(" ", 2)
        request = Request(method, path, _content_length(head), headers=head)
        self.requests.append(request)
        self._apply(self.on_head, line, request)
        line.upstream.sendall(head.encode("latin-1"))
        for block in _blocks(line.client, rest, request.length):
            self._apply(self.on_body, line, request)
            self._slow_down(len(block))
            line.upstream.sendall(self.garble(request, block) if self.garble else block)
            request.body += len(block)
        self._relay_answer(line, request)

    def _relay_answer(self, line: Line, request: Request) -> None:
        head, rest = _read_head(line.upstream)
        request.status = int(head.split(" ", 2)[1])
        line.client.sendall(head.encode("latin-1"))
        # Both may tell the length of what they leave out (RFC 9110, section 8.6).
        is_bare = request.method == "HEAD" or request.status == HTTPStatus.NOT_MODIFIED
        length = 0 if is_bare else _content_length(head)
        for block in _blocks(line.upstream, rest, length):
            self._apply(self.on_answer, line, request)
            self._slow_down(len(block))
            line.client.sendall(self.garble(request, block) if self.garble else block)
            request.answer += len(block)

    def _slow_down(self, count: int) -> None:
        time.sleep(count / self.bytes_per_second)

    @staticmethod
    def _apply(fault: Fault | None, line: Line, request: Request) -> None:
        if fault is not None:
            fault(line, request)


def _end(upstream: socket.socket) -> None:
    """End a connection, and wait until the server has done so too: it does after its request."""
    upstream.shutdown(socket.SHUT_WR)
    while upstream.recv(BLOCK):
        pass


def _read_head(end: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        block = end.recv(BLOCK)
        if not block:
            raise Broken
        data += block
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1") + "\r\n\r\n", rest


def _content_length(head: str) -> int:
    for line in head.lower().split("\r\n"):
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


def _blocks(end: socket.socket, first: bytes, length: int) -> Iterator[bytes]:
    left = length
    while left > 0:
        block = first or end.recv(min(BLOCK, left))
        first = b""
        if not block:
            raise Broken
        left -= len(block)
        yield block


@contextmanager
def bad_line(target: int) -> Iterator[BadLine]:
    line = BadLine(target)
    try:
        yield line
    finally:
        line.close()


def sometimes(fault: Callable[[Line], None], *, after: int, times: int, path: str) -> Fault:
    """A fault for some requests of a path, once `after` bytes of one have passed."""
    left = times
    lock = threading.Lock()

    def apply(line: Line, request: Request) -> None:
        nonlocal left
        moved = max(request.body, request.answer)
        with lock:
            is_due = left > 0 and moved >= after and request.path.startswith(path)
            left -= is_due
        if is_due:
            fault(line)

    return apply


def hold(is_enough: Callable[[], bool], until: threading.Event) -> Fault:
    """A fault that lets nothing more pass once enough has, until an event."""

    def wait(_line: Line, _request: Request) -> None:
        if is_enough():
            until.wait(HOLD_SECONDS)

    return wait
