"""Sends chunks as Dropzone does, down to the order of the fields."""

from __future__ import annotations

import hashlib
import json
import socket
import uuid
from base64 import b64encode
from dataclasses import dataclass, field
from random import Random
from typing import Any

import requests
from crc32c import crc32c

from tests.live_server import Server, receive_exactly

BOUNDARY = "----WebKitFormBoundarySluiceTests0001"


def random_bytes(length: int, seed: int = 0) -> bytes:
    """Random bytes, the same for the same seed."""
    return Random(seed).randbytes(length)


def crc32c_of(content: bytes) -> str:
    """The CRC32C in base64, as the API and S3 have it."""
    checksum: int = crc32c(content)
    return b64encode(checksum.to_bytes(4, "big")).decode()


def forged(content: bytes, position: int) -> bytes:
    """Other bytes with the same CRC32C: 12 of them, from there on, are others."""
    other = b"forged!!"
    # Bytes and their CRC32C, without its first and last inversion, leave it as it was.
    difference = other + (crc32c(other, 0xFFFFFFFF) ^ 0xFFFFFFFF).to_bytes(4, "little")
    changed = bytearray(content)
    for at, byte in enumerate(difference, position):
        changed[at] ^= byte
    return bytes(changed)


@dataclass
class ChunkedFile:
    """A file to send, and its chunk size."""

    content: bytes
    chunk_bytes: int
    filename: str = "film.mp4"
    key: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def count(self) -> int:
        """Number of chunks; an empty file has one."""
        return max(1, -(-len(self.content) // self.chunk_bytes))

    @property
    def sha256(self) -> str:
        """Of the whole file."""
        return hashlib.sha256(self.content).hexdigest()

    def chunk(self, index: int) -> bytes:
        """The bytes of one chunk."""
        return self.content[index * self.chunk_bytes : (index + 1) * self.chunk_bytes]

    def fields(self, index: int) -> dict[str, str]:
        """Dropzone's fields for a chunk."""
        return {
            "dzuuid": self.key,
            "dzchunkindex": str(index),
            "dztotalfilesize": str(len(self.content)),
            "dzchunksize": str(self.chunk_bytes),
            "dztotalchunkcount": str(self.count),
            "dzchunkbyteoffset": str(index * self.chunk_bytes),
        }

    def body(self, index: int, **changed: str) -> bytes:
        """The multipart body of a chunk, with some fields changed."""
        fields = {**self.fields(index), **changed}
        return form_body(fields, [(self.filename, self.chunk(index))])


def form_body(
    fields: dict[str, str], files: list[tuple[str, bytes]], boundary: str = BOUNDARY
) -> bytes:
    """A multipart body: fields first, then the file parts."""
    pieces = []
    for name, value in fields.items():
        pieces.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n')
        pieces.append(f"{value}\r\n")
    body = "".join(pieces).encode()
    for filename, content in files:
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="{filename}"\r\nContent-Type: video/mp4\r\n\r\n'
        )
        body += head.encode() + content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


def form_headers(boundary: str = BOUNDARY) -> dict[str, str]:
    """The headers Dropzone sends with a form."""
    return {
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Accept": "application/json",
    }


def send_chunk(server: Server, file: ChunkedFile, index: int, **changed: str) -> requests.Response:
    """POST one chunk."""
    return server.post("/upload", data=file.body(index, **changed), headers=form_headers())


def send_all(server: Server, file: ChunkedFile) -> dict[str, Any]:
    """POST every chunk in order; the last answer."""
    for index in range(file.count):
        response = send_chunk(server, file, index)
        assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def request_bytes(server: Server, path: str, body: bytes, **headers: str) -> bytes:
    """A whole POST request as raw bytes."""
    lines = {
        "Host": f"127.0.0.1:{server.port}",
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def chunk_request(server: Server, file: ChunkedFile, index: int) -> bytes:
    """The request of one chunk as raw bytes."""
    return request_bytes(
        server, "/upload", file.body(index), Content_Type=form_headers()["Content-Type"]
    )


def read_response(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower-case names) and body of one response."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(1)
        if not piece:
            raise ConnectionError(f"closed after {head!r}")
        head += piece
    first, *lines = head.decode().split("\r\n")
    headers = {
        name.lower(): value for name, _, value in (line.partition(": ") for line in lines) if name
    }
    body = receive_exactly(connection, int(headers.get("content-length", "0")))
    return int(first.split()[1]), headers, body


def read_json(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and JSON body of one response."""
    status, _, body = read_response(connection)
    return status, json.loads(body)


def stored_sha256(server: Server, upload_id: str) -> str:
    """The SHA-256 of the file that the server returns."""
    response = server.get(f"/media/{upload_id}")
    assert response.status_code == 200, response.text
    return hashlib.sha256(response.content).hexdigest()
