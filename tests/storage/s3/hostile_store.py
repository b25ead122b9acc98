"""A server that answers requests as a script says, however wrong that is."""

from __future__ import annotations

import io
import re
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Step:
    """What is done about one request."""

    answer: bytes = b""
    closes: bool = False
    """Whether the connection is closed after it, without a word about it."""
    reads_body: bool = True
    hangs: bool = False
    """Whether nothing is sent until the client has gone."""


def reply(status: int, body: bytes = b"", *headers: str) -> bytes:
    """An answer that is in order."""
    lines = [f"HTTP/1.1 {status} Text", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def error(status: int, code: str) -> bytes:
    """An error as S3 says it."""
    text = f"<Error><Code>{code}</Code><Message>secret of 127.0.0.1</Message></Error>"
    return reply(status, text.encode())


CUT = Step(closes=True)
SLOW_DOWN = Step(error(503, "SlowDown"))
STORED = Step(reply(200, b"", 'ETag: "abc"'))


class HostileStore:
    """Takes connections on loopback; after its script every request is answered as the last was."""

    def __init__(self, script: Sequence[Step], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, bytes]] = []
        """First line and body of each request."""
        self.connections = 0
        self._script = list(script)
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._accepted: list[socket.socket] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> HostileStore:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._accepted:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def bucket(self, seconds: float) -> Bucket:
        """A client whose calls give up after so long."""
        scheme = "https" if self._tls else "http"
        endpoint = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"
        address = BucketAddress.of("s3://films/prefix", endpoint=endpoint, region="region")
        return Bucket.at(address, key=lambda: AccessKey("id", "secret-key")).within(seconds)

    @property
    def lines(self) -> list[str]:
        """The first line of each request."""
        return [line for line, _ in self.requests]

    def _accept(self) -> None:
        threads = []
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._accepted.append(connection)
                self.connections += 1
                threads.append(threading.Thread(target=self._serve, args=[connection]))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                while head := _read_head(stream):
                    if not self._answer(connection, head, stream):
                        return

    def _answer(self, connection: socket.socket, head: bytes, stream: io.BufferedReader) -> bool:
        with self._lock:
            step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        body = stream.read(_body_length(head)) if step.reads_body else b""
        self.requests.append((head.split(b"\r\n")[0].decode(), body))
        connection.sendall(step.answer)
        if step.hangs:
            stream.read(1)
        return not step.closes and not step.hangs


def _read_head(stream: io.BufferedReader) -> bytes:
    lines = []
    while (line := stream.readline()) not in {b"", b"\r\n"}:
        lines.append(line)
    return b"".join(lines)


def _body_length(head: bytes) -> int:
    found = re.search(rb"(?i)content-length: (\d+)", head)
    return int(found[1]) if found else 0
