"""Opens lanes as the page does, frame by frame."""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from app.ingest.websocket import Opcode, frame
from tests.dropzone_client import ChunkedFile
from tests.live_server import Server, receive_exactly

KEY = b64encode(bytes(range(16))).decode()
MASK = b"\x37\xfa\x21\x3d"


def masked(data: bytes, mask: bytes = MASK) -> bytes:
    """What a client sends instead of the data."""
    pattern = mask * (len(data) // 4 + 1)
    number = int.from_bytes(data, "big") ^ int.from_bytes(pattern[: len(data)], "big")
    return number.to_bytes(len(data), "big")


def client_frame(opcode: int, data: bytes, *, is_last: bool = True, mask: bytes = MASK) -> bytes:
    """As a client sends it."""
    unmasked = frame(Opcode.BINARY, data)
    header = unmasked[: len(unmasked) - len(data)]
    first = (0x80 if is_last else 0) | opcode
    return bytes((first, header[1] | 0x80)) + header[2:] + mask + masked(data, mask)


def chunk_message(query: str, chunk: bytes, digest: str = "") -> bytes:
    """A chunk with its head."""
    head = json.dumps({"query": query, **({"digest": digest} if digest else {})}).encode()
    return len(head).to_bytes(2, "big") + head + chunk


def message_of(file: ChunkedFile, index: int, digest: str = "") -> bytes:
    """One chunk of a file."""
    query = urlencode({**file.fields(index), "filename": file.filename})
    return chunk_message(query, file.chunk(index), digest)


@dataclass
class Handshake:
    """The answer to one."""

    status: int
    headers: dict[str, str]


class LaneClient:
    """One lane; `handshake` says whether it was let in."""

    def __init__(self, server: Server, path: str = "/lanes", **headers: str) -> None:
        self.connection = server.connect()
        lines = {
            "Host": f"127.0.0.1:{server.port}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": KEY,
            "Sec-WebSocket-Protocol": "sluice-lane-1",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        self.connection.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        self.handshake = self._handshake()

    def __enter__(self) -> LaneClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()

    def send(self, message: bytes) -> None:
        """A binary message."""
        self.connection.sendall(client_frame(Opcode.BINARY, message))

    def ask(self, message: bytes) -> dict[str, Any]:
        """The answer to a binary message."""
        self.send(message)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next one."""
        opcode, data = self.receive()
        assert opcode is Opcode.TEXT
        answer: dict[str, Any] = json.loads(data)
        return answer

    def receive(self) -> tuple[Opcode, bytes]:
        """The next frame of the server; raises `ConnectionError` at the end."""
        first, length = receive_exactly(self.connection, 2)
        if length >= 126:
            length = int.from_bytes(receive_exactly(self.connection, 2 if length == 126 else 8))
        return Opcode(first & 0x0F), receive_exactly(self.connection, length)

    def close_code(self) -> int:
        """Why the server ends the lane, which it does now."""
        opcode, data = self.receive()
        assert opcode is Opcode.CLOSE
        assert self.connection.recv(1) == b""
        return int.from_bytes(data[:2])

    def end(self) -> None:
        """End it as a browser does."""
        self.connection.sendall(client_frame(Opcode.CLOSE, b""))
        self.connection.shutdown(socket.SHUT_WR)

    def _handshake(self) -> Handshake:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += receive_exactly(self.connection, 1)
        first, *lines = head.decode().split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return Handshake(int(first.split()[1]), {n.lower(): v.strip() for n, _, v in pairs})
