"""One raw HTTP/1.1 connection: interim responses, broken bodies, trailers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import parse_headers
from typing import IO, Self
from urllib.parse import urlsplit

from tests.waiting import wait_until_read

REPLY_SECONDS = 60
"""The longest that any server needs for an answer; after this the case fails."""

Headers = Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """What a server answered, with the interim responses (1xx) that came before it."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    interim: Sequence[Reply] = ()

    def get(self, name: str) -> str | None:
        """The value of a header field; several of one name are joined by commas."""
        return self.headers.get(name.lower())

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        assert value is not None, f"no {name} in {self}"
        return value

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.headers

    def items(self, name: str) -> list[str]:
        """The members of a comma-separated header field."""
        return [item.strip() for item in (self.get(name) or "").split(",") if item.strip()]


class Connection:
    """A connection to the server of a URL, for requests that are sent piece by piece."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._host = address.netloc
        self._socket = socket.create_connection(
            (address.hostname or "", address.port or 80), timeout=REPLY_SECONDS
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming: IO[bytes] = self._socket.makefile("rb")
        self._is_head = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, method: str, url: str, headers: Headers, *, version: str = "1.1") -> None:
        """Send the head of a request."""
        address = urlsplit(url)
        target = (address.path or "/") + (f"?{address.query}" if address.query else "")
        lines = [f"{method} {target} HTTP/{version}", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._is_head = method == "HEAD"
        self.send("\r\n".join([*lines, "", ""]).encode("utf-8"))

    def send(self, piece: bytes) -> None:
        """Send raw bytes; a server that has hung up may still have answered."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(piece)

    def send_and_stall(self, piece: bytes) -> None:
        """Send bytes, and return once the server has read them."""
        self.send(piece)
        wait_until_read(self._socket)

    def send_chunks(self, pieces: Sequence[bytes], trailers: Headers | None = None) -> None:
        """Send a body in the chunked transfer coding, followed by trailer fields."""
        for piece in pieces:
            self.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        fields = "".join(f"{name}: {value}\r\n" for name, value in (trailers or {}).items())
        self.send(b"0\r\n" + fields.encode() + b"\r\n")

    def read_one(self) -> Reply:
        """The next response, interim or final; raises `ConnectionError` if there is none."""
        line = self._incoming.readline()
        if not line:
            raise ConnectionError("the server closed the connection without an answer")
        status = int(line.split()[1])
        message = parse_headers(self._incoming)
        headers = {
            name.lower(): ", ".join(message.get_all(name, [])) for name in dict.fromkeys(message)
        }
        return Reply(status, headers, self._read_body(status, headers))

    def read(self) -> Reply:
        """The final response, with the interim ones before it."""
        interim: list[Reply] = []
        while (reply := self.read_one()).status < 200:
            interim.append(reply)
        return Reply(reply.status, reply.headers, reply.body, interim)

    def outcome(self) -> int | None:
        """The status of the final response; None if the server hung up without one."""
        try:
            return self.read().status
        except ConnectionError:
            return None

    def close(self) -> None:
        """Hang up after everything that was sent has arrived."""
        self._incoming.close()
        self._socket.close()

    def abort(self) -> None:
        """Hang up at once with a reset, as a network that breaks does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def _read_body(self, status: int, headers: Headers) -> bytes:
        if self._is_head or status < 200 or status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join(self._read_chunks())
        if "content-length" in headers:
            return self._incoming.read(int(headers["content-length"]))
        return self._incoming.read()

    def _read_chunks(self) -> Iterator[bytes]:
        while size := int(self._incoming.readline().split(b";")[0], 16):
            yield self._incoming.read(size)
            self._incoming.readline()
        while self._incoming.readline().strip():
            pass


def exchange(method: str, url: str, headers: Headers | None = None, body: bytes = b"") -> Reply:
    """The answer to one request; `Content-Length` is added if it has a body."""
    fields = dict(headers or {})
    if body or method in {"POST", "PATCH", "PUT"}:
        fields.setdefault("Content-Length", str(len(body)))
    with Connection(url) as connection:
        connection.begin(method, url, fields)
        connection.send(body)
        return connection.read()


def exchange_chunked(
    method: str,
    url: str,
    headers: Headers,
    pieces: Sequence[bytes],
    *,
    trailers: Headers | None = None,
) -> Reply:
    """The answer to a request with a chunked body; trailer fields are announced."""
    fields = {**headers, "Transfer-Encoding": "chunked"}
    if trailers:
        fields["Trailer"] = ", ".join(trailers)
    with Connection(url) as connection:
        connection.begin(method, url, fields)
        connection.send_chunks(pieces, trailers)
        return connection.read()
