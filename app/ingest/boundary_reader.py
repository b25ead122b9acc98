"""Reads payloads and the delimiters between them out of received blocks, copying neither."""

from __future__ import annotations


class BoundaryReader:
    """One received block at a time; of earlier ones at most the start of a delimiter is kept."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The start of a delimiter that the end of a block cut off. The first delimiter of a body
        # has no line before it: pretend that one ended just now.
        self._held = b"\r\n"
        self._block: bytes | bytearray = b""
        self._view = memoryview(b"")
        self._position = 0

    @property
    def has_unread(self) -> bool:
        """Whether bytes of the block are left."""
        return self._position < len(self._view)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Replace the block, all of which was read, by the next one."""
        # A memoryview cannot be searched. Copying and find: 6.8 GB/s, a regex in place: 2.9 GB/s.
        self._use_block(data if isinstance(data, bytes | bytearray) else bytes(data))

    def release(self) -> None:
        """Drop the block, read or not."""
        self._use_block(b"")

    def peek(self, limit: int) -> memoryview:
        """What is unread, at most `limit` bytes of it."""
        return self._view[self._position :][:limit]

    def skip(self, length: int) -> None:
        """Count `length` bytes that were peeked at as read."""
        self._position += length

    def read_payload(self) -> memoryview | None:
        """Payload before the next delimiter; empty after reading that, None to be fed first."""
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
        """True after reading a delimiter, False where none begins, None to be fed first."""
        missing = len(self._delimiter) - len(self._held)
        joined = self._held + self.peek(missing)
        if not self._delimiter.startswith(joined):
            return False
        self._position += len(joined) - len(self._held)
        is_whole = joined == self._delimiter
        self._held = b"" if is_whole else joined
        return True if is_whole else None

    def _delimiter_start_in(self, tail: memoryview) -> bytes:
        # A boundary contains no CR: only the last CR of a block can begin a delimiter cut off, and
        # what is held cannot hide a second beginning. So no byte is ever searched twice.
        _, cr, rest = bytes(tail).rpartition(b"\r")
        return cr + rest if cr and self._delimiter.startswith(cr + rest) else b""

    def _use_block(self, block: bytes | bytearray) -> None:
        self._block, self._view, self._position = block, memoryview(block), 0
