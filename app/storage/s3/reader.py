"""Reads an object like a file; sequential reads share one streaming request."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.s3.caller import busy
from app.storage.s3.connections import Answer, StoreUnreachable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COPIED_BYTES = 1024 * 1024
"""Block size of reads: costs 0.30 CPU s/GB; 256 KiB costs 0.48."""

SKIPPED_BYTES = 256 * 1024
"""A seek forward by at most this much reads and discards: cheaper than another request."""

FIRST_WINDOW_BYTES = 1024 * 1024
"""Size of the range requested after a seek. It doubles with each request that is read to its end:
random access fetches little, and a sequential read takes few requests."""

MAX_CUTS = 4
"""Consecutive responses cut off without a byte before the read fails."""

PAUSE_SECONDS = 0.2

Fetch = Callable[[ByteRange], Answer]


class SeekableReader(io.RawIOBase):
    """A file that is read from a position; its length may be found out late."""

    _position = 0

    def _size(self) -> int:
        """The length in bytes."""
        raise NotImplementedError

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another position; sends no request before the next read."""
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            offset += self._size()
        if offset < 0:
            raise ValueError("before the start of the file")
        self._position = offset
        return offset


def read_blocks(source: io.RawIOBase, length: int) -> Iterator[memoryview]:
    """Yields the next `length` bytes of a file block by block, in one reused buffer.

    Raises `BytesLost` if it has fewer.
    """
    buffer = memoryview(bytearray(min(COPIED_BYTES, length)))
    while length:
        count = source.readinto(buffer[:length])
        if not count:
            raise BytesLost("a file is shorter than it was")
        yield buffer[:count]
        length -= count


class ObjectReader(SeekableReader):
    """Reads an object of known length from any position; re-requests a response that is cut off.

    `fetch` requests a half-open range and checks that the response begins there. The first request,
    for `first`, is sent at once, so that a missing object raises here.
    """

    def __init__(self, fetch: Fetch, first: ByteRange, length: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._length = length
        self._position = first.start
        self._next, self._end = first.start, first.end  # The rest of the response.
        self._window = FIRST_WINDOW_BYTES
        self._answer: Answer | None = None  # Set first: `close` is called even if `fetch` raises.
        if first.length:
            self._answer = fetch(first)

    def _size(self) -> int:
        return self._length

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read some bytes; 0 at the end. Raises `ServerBusy`, `StorageFailed`."""
        wanted = memoryview(buffer).cast("B")[: max(0, self._length - self._position)]
        if not wanted:
            return 0
        for cut in range(MAX_CUTS):
            time.sleep(PAUSE_SECONDS * cut)
            try:
                answer = self._at_position()
                count = answer.readinto(wanted[: self._end - self._next])
                if count:
                    self._position += count
                    self._next += count
                    if self._next == self._end:
                        self._drop()
                    return count
            except StoreUnreachable:
                pass
            self._drop()
        raise busy()

    def close(self) -> None:
        """Close the connection."""
        self._drop()
        super().close()

    def _at_position(self) -> Answer:
        """Returns a response whose next byte is at the position."""
        if self._answer is not None and self._next < self._position < self._end:
            self._skip(self._answer)
        if self._answer is None or self._next != self._position:
            self._drop()
            is_cut_off = self._next == self._position < self._end  # Its rest is requested again.
            if not is_cut_off:
                has_read_on = self._next == self._position == self._end
                self._window = self._window * 2 if has_read_on else FIRST_WINDOW_BYTES
                self._end = min(self._position + self._window, self._length)
            self._next = self._position
            self._answer = self._fetch(ByteRange(self._next, self._end))
        return self._answer

    def _skip(self, answer: Answer) -> None:
        ahead = self._position - self._next
        if ahead > SKIPPED_BYTES:
            return
        scratch = memoryview(bytearray(ahead))
        while self._next < self._position:
            count = answer.readinto(scratch[: self._position - self._next])
            if count == 0:
                raise StoreUnreachable
            self._next += count

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer = None
