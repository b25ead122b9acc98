"""WebSocket messages (RFC 6455): framing on the server's side, without I/O."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha1
from typing import Protocol

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3."""

_MOST_CONTROL_BYTES = 125

_MOST_FRAMES = 1024
"""Frames of a message. Chromium's have up to 131,000 bytes, and fewer where the connection is busy;
each costs some microseconds, however small."""


class Opcode(IntEnum):
    """Opcodes of frames; RFC 6455, section 5.2."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """Why a connection ends; RFC 6455, section 7.4.1, and its registry."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    TOO_BIG = 1009
    SERVICE_RESTART = 1012
    TRY_AGAIN_LATER = 1013


class WebSocketError(Exception):
    """The client broke the protocol; the connection is closed with this code."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Message:
    """A complete message, or a control frame."""

    opcode: Opcode
    data: bytes


class MessageReader:
    """Assembles messages from bytes that arrive in pieces of any size."""

    def __init__(self, most_bytes: int) -> None:
        """Messages may have at most `most_bytes` bytes."""
        self._most_bytes = most_bytes
        self._buffer = bytearray()
        self._needed = 2
        self._opcode: Opcode | None = None
        self._message = bytearray()
        self._frames = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the incomplete message and frame."""
        return len(self._buffer) + len(self._message)

    def feed(self, data: bytes) -> list[Message]:
        """Returns the messages that these bytes complete; raises `WebSocketError`."""
        self._buffer += data
        buffer, found = self._buffer, list[Message]()
        while len(buffer) >= self._needed:
            is_last, opcode = _first_byte(buffer[0])
            length, header_bytes = _length(buffer)
            if length is None:
                self._needed = header_bytes
                continue
            self._check(opcode, length, is_last=is_last)
            self._needed = header_bytes + length
            if len(buffer) < self._needed:
                continue
            mask = buffer[header_bytes - 4 : header_bytes]
            payload = _unmasked(buffer[header_bytes : self._needed], mask)
            del buffer[: self._needed]
            self._needed = 2
            if opcode >= Opcode.CLOSE:
                found.append(Message(opcode, payload))
            elif (message := self._add(opcode, payload, is_last=is_last)) is not None:
                found.append(message)
        return found

    def _check(self, opcode: Opcode, length: int, *, is_last: bool) -> None:
        if opcode >= Opcode.CLOSE:
            if length > _MOST_CONTROL_BYTES or not is_last:
                raise WebSocketError(CloseCode.PROTOCOL_ERROR, "A control frame is too long.")
            return
        if (opcode is Opcode.CONTINUATION) is (self._opcode is None):
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "A message is out of order.")
        if len(self._message) + length > self._most_bytes or self._frames == _MOST_FRAMES:
            raise WebSocketError(CloseCode.TOO_BIG, "A message is too long.")

    def _add(self, opcode: Opcode, payload: bytes, *, is_last: bool) -> Message | None:
        if opcode is not Opcode.CONTINUATION:
            self._opcode = opcode
        if not is_last:
            self._message += payload
            self._frames += 1
            return None
        whole = bytes(self._message) + payload if self._message else payload
        message = Message(self._opcode or opcode, whole)
        self._opcode, self._message, self._frames = None, bytearray(), 0
        return message


def frame(opcode: Opcode, data: bytes) -> bytes:
    """A complete, unmasked message of the server."""
    first, count = 0x80 | opcode, len(data)
    if count <= _MOST_CONTROL_BYTES:
        return bytes((first, count)) + data
    if count < 1 << 16:
        return bytes((first, 126)) + count.to_bytes(2, "big") + data
    return bytes((first, 127)) + count.to_bytes(8, "big") + data


def close_frame(code: CloseCode, reason: str = "") -> bytes:
    """The closing frame; the reason is truncated to fit a control frame."""
    data = reason.encode()[: _MOST_CONTROL_BYTES - 2]
    return frame(Opcode.CLOSE, code.to_bytes(2, "big") + data.decode(errors="ignore").encode())


def accept_value(key: str) -> str:
    """`Sec-WebSocket-Accept` for a client's `Sec-WebSocket-Key`; RFC 6455, section 4.2.2."""
    return b64encode(sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()).decode()


def _first_byte(byte: int) -> tuple[bool, Opcode]:
    try:
        opcode = Opcode(byte & 0x0F)
    except ValueError:
        raise WebSocketError(CloseCode.PROTOCOL_ERROR, "A frame of an unknown kind.") from None
    if byte & 0x70:
        raise WebSocketError(CloseCode.PROTOCOL_ERROR, "An extension that was not agreed on.")
    return bool(byte & 0x80), opcode


def _length(head: bytearray) -> tuple[int | None, int]:
    """Lengths of payload and header in bytes; payload None while the header is incomplete."""
    short = head[1] & 0x7F
    if not head[1] & 0x80:
        raise WebSocketError(CloseCode.PROTOCOL_ERROR, "A frame of a client is masked.")
    extra = {126: 2, 127: 8}.get(short, 0)
    header_bytes = 2 + extra + 4
    if len(head) < header_bytes:
        return None, header_bytes
    if not extra:
        return short, header_bytes
    length = int.from_bytes(head[2 : 2 + extra], "big")
    if length < (126 if extra == 2 else 1 << 16):
        raise WebSocketError(CloseCode.PROTOCOL_ERROR, "A length is longer than it must be.")
    return length, header_bytes


def _unmasked(payload: bytearray, mask: bytearray) -> bytes:
    """One long number: 30 times as fast as a loop, and 40 times as slow as a copy."""
    count = len(payload)
    key = bytes(mask) * (count // 4) + bytes(mask[: count % 4])
    number = int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")
    return number.to_bytes(count, "little")


# ---- inner ---------------------------------------------------------------------------------------

# Requests that arrive inside another one, as messages of its connection.


INNER_KEY = "sluice.inner_requests"
"""WSGI environment key for the `InnerRequests` of an upgraded connection."""


@dataclass(frozen=True, slots=True)
class InnerRequest:
    """A POST by the sender of the outer request: the same cookies, link, origin and address.

    `path` is relative to the same link as the outer request.
    """

    path: str
    query: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InnerAnswer:
    """`retry_after` is the header's, if there is one; `body` is empty for none."""

    status: int
    retry_after: str | None
    body: bytes


class InnerRequests(Protocol):
    """Runs inner requests as if each had arrived on its own connection."""

    @property
    def is_ending(self) -> bool:
        """Whether the server is shutting down and accepts no more inner requests."""
        ...

    def run(self, inner: InnerRequest, /) -> InnerAnswer:
        """Returns the response to one; never raises an exception of the application."""
        ...
