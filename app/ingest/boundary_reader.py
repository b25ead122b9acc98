"""Reads payloads and the delimiters between them from received blocks, without copying."""

from __future__ import annotations


class BoundaryReader:
    """Holds one received block; of earlier ones it keeps at most the start of a delimiter."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The start of a delimiter that was cut off by the end of a block. No line precedes the
        # first delimiter of a body: pretend that one has just ended.
        self._held = b"\r\n"
        self._block: bytes | bytearray = b""
        self._view = memoryview(b"")
        self._position = 0

    @property
    def has_unread(self) -> bool:
        """Whether bytes of the block are left."""
        return self._position < len(self._view)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Replace the block, which was read to its end, with the next one."""
        # A memoryview has no find(). Copying and find: 6.8 GB/s, a regex in place: 2.9 GB/s.
        self._use_block(data if isinstance(data, bytes | bytearray) else bytes(data))

    def release(self) -> None:
        """Drop the block, read or not."""
        self._use_block(b"")

    def peek(self, limit: int) -> memoryview:
        """The next unread bytes, at most `limit`."""
        return self._view[self._position :][:limit]

    def skip(self, length: int) -> None:
        """Count `length` bytes that were peeked at as read."""
        self._position += length

    def read_payload(self) -> memoryview | None:
        """Payload before the next delimiter; empty after the delimiter, None if it must be fed."""
        if self._held:
            is_delimiter = self.read_delimiter()
            if is_delimiter is None:
                return None
            held, self._held = self._held, b""
            return memoryview(held)
        start = self._position
        found = self._block.find(self._delimiter, start)
        if found >= 0:
            self._position = found if found > start else found + len(self._delimiter)
            return self._view[start:found]
        self._position = len(self._view)
        self._held = self._delimiter_start_in(self._view[start:][1 - len(self._delimiter) :])
        return self._view[start : len(self._view) - len(self._held)] or None

    def read_delimiter(self) -> bool | None:
        """True after reading a delimiter, False if none begins here, None if it must be fed."""
        missing = len(self._delimiter) - len(self._held)
        joined = self._held + self.peek(missing)
        if not self._delimiter.startswith(joined):
            return False
        self._position += len(joined) - len(self._held)
        is_whole = joined == self._delimiter
        self._held = b"" if is_whole else joined
        return True if is_whole else None

    def _delimiter_start_in(self, tail: memoryview) -> bytes:
        # A boundary contains no CR: only the last CR of a block can begin a delimiter that is cut
        # off, and nothing after it can begin another. So no byte is ever searched twice.
        _, cr, rest = bytes(tail).rpartition(b"\r")
        return cr + rest if cr and self._delimiter.startswith(cr + rest) else b""

    def _use_block(self, block: bytes | bytearray) -> None:
        self._block, self._view, self._position = block, memoryview(block), 0
