"""Decodes the chunked transfer coding (RFC 9112, section 7.1), without input or output.

Strict wherever two parsers could disagree on where a request ends (request smuggling): a line must
end with CRLF, and a size must be hexadecimal digits only.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from app.core.errors import MalformedBody

MAX_LINE_BYTES = 8190
"""Longest line with the size of a chunk and its extensions."""

MAX_TRAILER_BYTES = 64 * 1024
"""Longest trailer section. A body beyond either limit is refused."""

# The size and chunk extensions, which are not used in practice; no control characters allowed.
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")


class _Expected(Enum):
    SIZE = auto()
    DATA = auto()
    END_OF_DATA = auto()
    TRAILERS = auto()
    NOTHING = auto()


class ChunkedDecoder:
    """Incremental decoder of a chunked body.

    `feed` it everything up to the payload. While `data_left` is above 0, payload comes next: first
    what `take` returns, then bytes that need not pass through here but must be counted with
    `passed`.

    After a malformed body every further call raises `MalformedBody` too: the end of that body is
    unknown, and the following bytes must not be parsed as another request.
    """

    def __init__(self) -> None:
        self.data_left = 0
        self.trailers = b""
        self._expected = _Expected.SIZE
        self._buffer = bytearray()
        self._fault: str | None = None

    def require_intact(self) -> None:
        """Raise `MalformedBody` if the body was found malformed before."""
        if self._fault is not None:
            raise MalformedBody(self._fault)

    @property
    def has_ended(self) -> bool:
        """Whether the body and its trailers are complete."""
        return self._expected is _Expected.NOTHING

    @property
    def leftover(self) -> bytes:
        """Bytes fed but not taken: after the end of the body, the start of the next request."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> None:
        """Decode bytes from the connection; raises `MalformedBody`."""
        self.require_intact()
        self._buffer += data
        self._advance()

    def take(self, wanted: memoryview) -> int:
        """Move payload that was fed into `wanted`; returns how many bytes."""
        self.require_intact()
        count = min(len(wanted), self.data_left, len(self._buffer))
        wanted[:count] = self._buffer[:count]
        del self._buffer[:count]
        self.passed(count)
        return count

    def passed(self, count: int) -> None:
        """Count bytes of payload that were taken."""
        self.data_left -= count
        if self._expected is _Expected.DATA and not self.data_left:
            self._expected = _Expected.END_OF_DATA
            self._advance()

    def _advance(self) -> None:
        try:
            while (step := _STEPS.get(self._expected)) and step(self):
                pass
        except MalformedBody as error:
            self._fault = str(error)
            raise

    # Each step parses one element; it returns whether that was complete and another may follow.

    def _take_size(self) -> bool:
        line = self._take_until(b"\r\n", MAX_LINE_BYTES)
        if line is None:
            return False
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise MalformedBody("The size of a chunk is malformed.")
        self.data_left = int(match[1], 16)
        self._expected = _Expected.DATA if self.data_left else _Expected.TRAILERS
        return True

    def _take_end_of_data(self) -> bool:
        if not b"\r\n".startswith(self._buffer[:2]):
            raise MalformedBody("A chunk does not end where its size says.")
        if len(self._buffer) < 2:
            return False
        del self._buffer[:2]
        self._expected = _Expected.SIZE
        return True

    def _take_trailers(self) -> bool:
        if self._buffer[:2] == b"\r\n":
            del self._buffer[:2]
        elif len(self._buffer) < 2:
            return False
        else:
            trailers = self._take_until(b"\r\n\r\n", MAX_TRAILER_BYTES)
            if trailers is None:
                return False
            self.trailers = trailers
        self._expected = _Expected.NOTHING
        return False

    def _take_until(self, end: bytes, limit: int) -> bytes | None:
        position = self._buffer.find(end, 0, limit)
        if position < 0:
            if len(self._buffer) >= limit:
                raise MalformedBody(f"A line of the body's coding is over {limit} bytes.")
            return None
        taken = bytes(self._buffer[:position])
        del self._buffer[: position + len(end)]
        return taken


_STEPS = {
    _Expected.SIZE: ChunkedDecoder._take_size,
    _Expected.END_OF_DATA: ChunkedDecoder._take_end_of_data,
    _Expected.TRAILERS: ChunkedDecoder._take_trailers,
}
"""What can be parsed in each state; payload is taken by the caller."""
