"""HTTP/1.1 by hand: a request in pieces, and whatever comes back, 1xx answers too."""

from __future__ import annotations

import select
import socket
import ssl
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import SplitResult, urlsplit

from sluice_client.errors import ConnectionFailed
from sluice_client.options import Options

TIMEOUT_SECONDS = 15.0
MOST_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """Status line and headers (names in lower case) of one answer, and the start of its body."""

    version: str
    status: int
    headers: dict[str, str]
    body: bytes


class BareConnection:
    """One connection to the server; a context manager."""

    def __init__(self, options: Options) -> None:
        parts = urlsplit(options.server)
        self._key = options.api_key
        self._path = parts.path.rstrip("/")
        self._host = parts.netloc.rpartition("@")[2]
        self._received = b""
        try:
            self.socket = _connect(parts)
        except OSError as error:
            raise ConnectionFailed(f"No connection to {self._host}: {error}") from error

    def __enter__(self) -> BareConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    @property
    def tls(self) -> str | None:
        """Version and cipher, where the connection is encrypted."""
        if not isinstance(self.socket, ssl.SSLSocket):
            return None
        cipher = self.socket.cipher()
        return f"{self.socket.version()}, {cipher[0] if cipher else 'unknown cipher'}"

    def send_head(self, method: str, path: str, **headers: str) -> None:
        """The request line and headers; underscores in names stand for dashes."""
        lines = [f"{method} {self._path}{path} HTTP/1.1", f"Host: {self._host}"]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def send(self, data: bytes) -> None:
        """Bytes as they are; raises `ConnectionFailed`."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise ConnectionFailed(f"The connection broke while sending: {error}") from error

    def has_news(self, seconds: float) -> bool:
        """Whether an answer, or the end of the connection, comes within `seconds`."""
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return True
        return bool(self._received) or bool(select.select([self.socket], [], [], seconds)[0])

    def answer(self) -> Answer | None:
        """The next answer; None if the connection has ended. Raises `ConnectionFailed`."""
        try:
            while b"\r\n\r\n" not in self._received:
                block = self.socket.recv(4096)
                if not block or len(self._received) > MOST_HEAD_BYTES:
                    return None
                self._received += block
        except ConnectionError:
            return None
        except OSError as error:
            raise ConnectionFailed(f"No answer: {error}") from error
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        return self._parsed(head.decode("latin-1"))

    def _parsed(self, head: str) -> Answer:
        first, *lines = head.split("\r\n")
        version, _, rest = first.partition(" ")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        status = int(rest[:3]) if rest[:3].isdecimal() else 0
        length = headers.get("content-length", "0")
        body = b"" if status < 200 or not length.isdecimal() else self._body(int(length))
        return Answer(version, status, headers, body)

    def _body(self, length: int) -> bytes:
        length = min(length, MOST_HEAD_BYTES)
        while len(self._received) < length:
            block = self.socket.recv(4096)
            if not block:
                break
            self._received += block
        body, self._received = self._received[:length], self._received[length:]
        return body


def _connect(parts: SplitResult) -> socket.socket:
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = socket.create_connection((host, port), TIMEOUT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return context.wrap_socket(connection, server_hostname=host)
    return connection
