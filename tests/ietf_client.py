"""IETF resumable uploads over raw connections, with interim responses."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

from tests.live_server import Server, receive_exactly

NEWEST = "9"
"""Interop version of the newest draft."""

MAX_HEAD_BYTES = 65536


@dataclass(frozen=True)
class Answer:
    """A final response, and the headers of the interim ones before it; names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: list[tuple[int, dict[str, str]]]

    @property
    def upload_id(self) -> str:
        """The upload's id, from its URL."""
        return self.headers["location"].rpartition("/")[2]

    def json(self) -> dict[str, Any]:
        """The body."""
        document: dict[str, Any] = json.loads(self.body)
        return document


def request_head(server: Server, method: str, path: str, headers: dict[str, str]) -> bytes:
    """The head of a request as it stands on the wire."""
    lines = {"Host": f"127.0.0.1:{server.port}", **headers}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("latin-1")


def request_bytes(
    server: Server, method: str, path: str, body: bytes, headers: dict[str, str]
) -> bytes:
    """A whole request as raw bytes."""
    length = {"Content-Length": str(len(body))}
    return request_head(server, method, path, {**length, **headers}) + body


def chunked(body: bytes, size: int = 1000) -> bytes:
    """`body` in the chunked transfer coding."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    coded = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return coded + b"0\r\n\r\n"


def read_answer(connection: socket.socket, method: str = "POST") -> Answer:
    """The final response to one request, with the interim ones before it."""
    interim = []
    while True:
        status, headers = read_head(connection)
        if status >= 200:
            break
        interim.append((status, headers))
    length = 0 if method == "HEAD" else int(headers.get("content-length", "0"))
    return Answer(status, headers, receive_exactly(connection, length), interim)


def read_head(connection: socket.socket) -> tuple[int, dict[str, str]]:
    """Status and headers of the next response, interim or not."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(1)
        if not piece or len(head) > MAX_HEAD_BYTES:
            raise ConnectionError(f"no response, but {head!r}")
        head += piece
    first, *lines = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value for name, _, value in pairs}


def send(
    server: Server, method: str, path: str = "/resumable/", body: bytes = b"", **headers: str
) -> Answer:
    """Send one request on a new connection; `_` in header names stands for `-`."""
    return send_request(server, method, path, body, headers)


def send_request(
    server: Server, method: str, path: str, body: bytes, headers: dict[str, str]
) -> Answer:
    """`send` with the headers as a mapping."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with server.connect() as connection:
        if named.get("Transfer-Encoding") == "chunked":
            request = request_head(server, method, path, named) + chunked(body)
        else:
            request = request_bytes(server, method, path, body, named)
        connection.sendall(request)
        return read_answer(connection, method)


def create(server: Server, body: bytes = b"", *, is_last: bool = False, **headers: str) -> Answer:
    """POST to the resource that creates uploads."""
    return send(server, "POST", body=body, Upload_Complete=flag(is_last), **headers)


def append(
    server: Server, upload_id: str, offset: int, body: bytes, *, is_last: bool, **headers: str
) -> Answer:
    """PATCH an upload."""
    fields = {
        "Content_Type": "application/partial-upload",
        "Upload_Offset": str(offset),
        "Upload_Complete": flag(is_last),
        **headers,
    }
    return send_request(server, "PATCH", f"/resumable/{upload_id}", body, fields)


def look(server: Server, upload_id: str, **headers: str) -> Answer:
    """HEAD an upload."""
    return send(server, "HEAD", f"/resumable/{upload_id}", b"", **headers)


def flag(is_true: bool) -> str:
    """A boolean as a structured field."""
    return "?1" if is_true else "?0"
