"""A client that costs next to nothing: plain sockets, sendfile out, one reused buffer in."""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.lib.harness import CHUNK_BYTES

BOUNDARY = "----WebKitFormBoundaryBench00000001"
BLOCK_BYTES = 1024 * 1024
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
        self._buffer = memoryview(bytearray(BLOCK_BYTES))

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
        fields = {"Host": "bench", **headers, "Content-Length": str(length)}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._socket.sendall(f"{line} HTTP/1.1\r\n{head}\r\n".encode() + before)
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
        parts = [_form_around({"length": str(file.length)}, file.path.name) for file in files]
        ends = {closing for _, closing in parts}
        delimiter = b"\r\n"
        length = sum(len(head) + file.length for (head, _), file in zip(parts, files, strict=True))
        length += len(delimiter) * (len(files) - 1) + sum(map(len, ends))
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {_FORM_TYPE}\r\n"
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

    def get(self, path: str, byte_range: tuple[int, int] | None = None) -> int:
        """GET and drop the body; its length. The range is half-open."""
        head = f"GET {path} HTTP/1.1\r\nHost: bench\r\n"
        if byte_range:
            head += f"Range: bytes={byte_range[0]}-{byte_range[1] - 1}\r\n"
        self._socket.sendall(f"{head}\r\n".encode())
        answer = self._response()
        received = 0
        while count := answer.readinto(self._buffer):
            received += count
        if answer.status not in {200, 206}:
            raise RequestFailed(f"{answer.status} for {path}")
        return received

    def json(self, path: str) -> dict[str, Any]:
        """GET a JSON document."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        document: dict[str, Any] = json.loads(self._response().read())
        return document

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


Upload = Callable[[int, Path, int], str]
"""Uploads the start of a file, so many bytes, to a port; the id, or the path to fetch it from."""


def chunks(source: Path, length: int) -> Iterator[FileSlice]:
    """The start of a file, so many bytes, in slices of at most `CHUNK_BYTES`."""
    for start in range(0, length, CHUNK_BYTES):
        yield FileSlice(source, start, min(CHUNK_BYTES, length - start))


def upload_raw(port: int, source: Path, length: int) -> str:
    """Upload the start of a file as raw chunks; the id."""
    return _upload_chunks(port, source, length, _post_raw)


def upload_form(port: int, source: Path, length: int) -> str:
    """Upload the start of a file as Dropzone's forms; the id."""
    return _upload_chunks(port, source, length, _post_form)


def upload_whole(connection: Connection, source: Path) -> str:
    """Upload a file as a plain HTML form does; the id."""
    body = FileSlice(source, 0, source.stat().st_size)
    document = connection.post("/upload", _FORM_TYPE, body, around=_form_around({}, source.name))
    return _complete(document)


def in_parallel(count: int, job: Callable[[int], object]) -> None:
    """Run `job(0)` to `job(count - 1)` at once; the first error is raised."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(job, range(count)))


def in_order(paths: Iterable[Path], *, parallel: int, port: int) -> None:
    """Upload whole files, each connection taking the next one that is left."""
    waiting = list(paths)[::-1]

    def work(_: int) -> None:
        with Connection(port) as connection:
            while waiting:
                try:
                    path = waiting.pop()
                except IndexError:
                    return
                upload_whole(connection, path)

    in_parallel(parallel, work)


def in_batches(paths: Sequence[Path], *, parallel: int, port: int) -> None:
    """Upload whole files in one request a connection, which takes its share of them."""

    def work(number: int) -> None:
        share = paths[number::parallel]
        with Connection(port) as connection:
            files = [FileSlice(path, 0, path.stat().st_size) for path in share]
            connection.post_files("/batch", files)

    in_parallel(min(parallel, len(paths)), work)


_FORM_TYPE = f"multipart/form-data; boundary={BOUNDARY}"

_Post = Callable[[Connection, dict[str, str], FileSlice], dict[str, Any]]


def _upload_chunks(port: int, source: Path, length: int, post: _Post) -> str:
    key = str(uuid.uuid4())
    with Connection(port) as connection:
        for index, body in enumerate(chunks(source, length)):
            document = post(connection, _fields(key, index, length), body)
    return _complete(document)


def _complete(document: dict[str, Any]) -> str:
    if not document["complete"]:
        raise RequestFailed(f"the upload is not complete: {document}")
    upload_id: str = document["id"]
    return upload_id


def _fields(key: str, index: int, length: int) -> dict[str, str]:
    return {
        "dzuuid": key,
        "dzchunkindex": str(index),
        "dztotalfilesize": str(length),
        "dzchunksize": str(CHUNK_BYTES),
        "dztotalchunkcount": str(-(-length // CHUNK_BYTES)),
        "dzchunkbyteoffset": str(index * CHUNK_BYTES),
    }


def _post_raw(connection: Connection, fields: dict[str, str], body: FileSlice) -> dict[str, Any]:
    query = urlencode({**fields, "filename": "film.mp4"})
    return connection.post(f"/upload?{query}", "application/octet-stream", body, around=(b"", b""))


def _post_form(connection: Connection, fields: dict[str, str], body: FileSlice) -> dict[str, Any]:
    return connection.post("/upload", _FORM_TYPE, body, around=_form_around(fields, "film.mp4"))


def _form_around(fields: dict[str, str], filename: str) -> tuple[bytes, bytes]:
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
