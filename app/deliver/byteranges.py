"""The body of an answer to several ranges: multipart/byteranges (RFC 9110, section 14.6)."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import RawIOBase
from typing import Any

from app.core.ranges import ByteRange
from app.deliver.http_range import content_range
from app.http.context import SENDING_KEY, Sending

BLOCK_BYTES = 64 * 1024
"""Size of one read, and all that a transfer holds in memory: a thousand slow readers hold a
thousand of these."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The bytes around the parts. Pure."""

    spans: Sequence[ByteRange]
    length: int
    """Bytes of the whole file."""
    content_type: str
    boundary: str = field(default_factory=lambda: secrets.token_hex(16))
    """128 random bits: the chance that a file contains it is negligible."""

    def head(self, span: ByteRange) -> bytes:
        """What comes before the bytes of a part."""
        return (
            f"\r\n--{self.boundary}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Range: {content_range(span, self.length)}\r\n\r\n"
        ).encode("ascii")

    @property
    def tail(self) -> bytes:
        """What comes after the last part."""
        return f"\r\n--{self.boundary}--\r\n".encode("ascii")

    @property
    def content_length(self) -> int:
        """Bytes of the body."""
        parts = sum(len(self.head(span)) + span.length for span in self.spans)
        return parts + len(self.tail)


class PartsOfFile:
    """The body in blocks, each read once the one before is sent; closes the file."""

    def __init__(self, file: RawIOBase, layout: Layout, sending: Sending | None = None) -> None:
        self._file = file
        self._layout = layout
        self._sending = sending
        self._sent = 0
        if sending is not None:
            sending.began()

    def __iter__(self) -> Iterator[bytes]:
        for span in self._layout.spans:
            yield from self._part(span)
        yield self._layout.tail

    def _part(self, span: ByteRange) -> Iterator[bytes]:
        head, left = self._layout.head(span), span.length
        self._file.seek(span.start)
        while left:
            block = self._file.read(min(BLOCK_BYTES, left))
            if not block:
                # Anything sent now would be taken for the missing bytes.
                raise OSError(errno.EIO, "the file is shorter than its record says")
            left -= len(block)
            yield head + block
            self._sent += len(block)
            head = b""

    def close(self) -> None:
        """Close the file; the server calls this even if not everything was sent."""
        if self._sending is not None and not self._file.closed:
            self._sending.ended(self._sent)
        self._file.close()


def parts_body(environ: dict[str, Any], file: RawIOBase, layout: Layout) -> PartsOfFile:
    """The parts as a body; `file` is closed afterwards.

    The time limit is the listener's (`gunicorn_conf.SEND_IDLE_SECONDS`). A timeout of the socket
    itself would apply to a whole block, and be too short for slow lines.
    """
    return PartsOfFile(file, layout, environ.get(SENDING_KEY))
