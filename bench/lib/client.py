"""A client that costs next to nothing: sendfile out, and what comes in is dropped by the kernel.

On loopback each side does a part of the other's work: a client that copied what it got cost nginx
a tenth to a fifth more CPU time for ranges of 5 MB.
"""

from __future__ import annotations

import http.client
import json
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

BOUNDARY = "----WebKitFormBoundaryBench00000001"
FORM_TYPE = f"multipart/form-data; boundary={BOUNDARY}"

HEAD_BYTES = 64 * 1024
"""More than http.client reads ahead when it looks for the end of a head."""
DROP_BYTES = 16 * 1024 * 1024
"""The most that is dropped at once."""
_NOWHERE = mmap.mmap(-1, DROP_BYTES)
_TIMEOUT = struct.pack("@ll", 60, 0)  # struct timeval


class RequestFailed(Exception):
    """The server answered with an error; a benchmark has no use for such a sample."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes of a file on the client's side."""

    path: Path
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sent back."""

    text: bytes
    headers: Message


class Connection:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Not settimeout(): it makes the descriptor non-blocking, and costs a poll() a call.
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def request(
        self,
        line: str,
        headers: dict[str, str],
        body: FileSlice | None = None,
        *,
        around: tuple[bytes, bytes] = (b"", b""),
    ) -> Answer:
        """Send "METHOD path" and a slice of a file between two byte strings; 2xx only."""
        before, after = around
        length = len(before) + (body.length if body else 0) + len(after)
        fields = {"Host": "localhost", **headers, "Content-Length": str(length)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._socket.sendall(f"{line} HTTP/1.1\r\n{lines}\r\n".encode() + before)
        if body:
            self._send_slice(body)
        if after:
            self._socket.sendall(after)
        answer = self._response()
        text = answer.read()
        if not 200 <= answer.status < 300:
            raise RequestFailed(f"{answer.status} {text[:300]!r}")
        return Answer(text, answer.headers)

    def post(
        self, path: str, content_type: str, body: FileSlice, *, around: tuple[bytes, bytes]
    ) -> dict[str, Any]:
        """POST a slice of a file between two byte strings; the JSON of the answer."""
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        answer = self.request(f"POST {path}", headers, body, around=around)
        document: dict[str, Any] = json.loads(answer.text)
        return document

    def post_files(self, path: str, files: Sequence[FileSlice]) -> dict[str, Any]:
        """POST files as the parts of one form; the JSON of the answer."""
        parts = [form_around({"length": str(file.length)}, file.path.name) for file in files]
        ends = {closing for _, closing in parts}
        delimiter = b"\r\n"
        length = sum(len(head) + file.length for (head, _), file in zip(parts, files, strict=True))
        length += len(delimiter) * (len(files) - 1) + sum(map(len, ends))
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM_TYPE}\r\n"
        self._socket.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        for number, ((opening, _), file) in enumerate(zip(parts, files, strict=True)):
            self._socket.sendall((delimiter if number else b"") + opening)
            self._send_slice(file)
        self._socket.sendall(ends.pop())
        answer = self._response()
        document: dict[str, Any] = json.loads(answer.read())
        if answer.status != 200 or document["stored"] != len(files):
            raise RequestFailed(f"{answer.status}: {document.get('stored')} of {len(files)} stored")
        return document

    def get(
        self, path: str, byte_range: tuple[int, int] | None = None, *, host: str = "localhost"
    ) -> int:
        """GET and drop the body; its length. The range is half-open."""
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n"
        if byte_range:
            head += f"Range: bytes={byte_range[0]}-{byte_range[1] - 1}\r\n"
        self._socket.sendall(f"{head}\r\n".encode())
        answer = self._response()
        if answer.status not in {200, 206} or answer.length is None:
            raise RequestFailed(f"{answer.status} for {path}")
        length = answer.length
        with_head = len(answer.read1(HEAD_BYTES))  # What came with the head, or right after it.
        return with_head + drop(self._socket, length - with_head)

    def json(self, path: str) -> dict[str, Any]:
        """GET a JSON document."""
        document: dict[str, Any] = json.loads(self.text(path))
        return document

    def text(self, path: str) -> str:
        """GET a text, also that of an error."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return self._response().read().decode()

    def length(self, path: str) -> int:
        """The length that the server says a body has."""
        self._socket.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = http.client.HTTPResponse(self._socket, method="HEAD")
        answer.begin()
        return int(answer.headers["Content-Length"])

    def _send_slice(self, body: FileSlice) -> None:
        with body.path.open("rb", buffering=0) as file:
            position, end = body.start, body.start + body.length
            while position < end:
                position += os.sendfile(
                    self._socket.fileno(), file.fileno(), position, end - position
                )

    def _response(self) -> http.client.HTTPResponse:
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        return answer


def drop(connection: socket.socket, count: int) -> int:
    """Take bytes from a TCP connection without copying them; fewer than asked for at its end."""
    dropped = 0
    while dropped < count:
        wanted = min(count - dropped, DROP_BYTES)
        # MSG_TRUNC (tcp(7)): the buffer is not touched, and has no memory behind it.
        taken = connection.recv_into(_NOWHERE, wanted, socket.MSG_TRUNC)
        if not taken:
            break
        dropped += taken
    return dropped


def form_around(fields: dict[str, str], filename: str) -> tuple[bytes, bytes]:
    """What stands before and after the payload of a form."""
    before = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    before += (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
        "Content-Type: video/mp4\r\n\r\n"
    )
    return before.encode(), f"\r\n--{BOUNDARY}--\r\n".encode()
