"""Response bodies: files sent by the kernel, pieces of files, several ranges."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import FileIO, RawIOBase
from typing import Any

from werkzeug.wsgi import FileWrapper

from app.core.ranges import ByteRange
from app.deliver.conditional import content_range
from app.http.context import SENDING_KEY, Sending
from app.ingest.connection import KernelSender, bound_sending, kernel_sender
from app.video.index.virtual_file import Piece
from app.video.serve.source import read_fully

READ_BYTES = 1024 * 1024
"""Block for servers and transports that cannot sendfile (TLS, HTTP/2)."""

SENT_FILE_KEY = "sluice.sent_file"
"""Key of the WSGI environment for the file that is sent; the access log reads its `sent_bytes`."""

IDLE_SECONDS = 60.0
"""A client that reads nothing for this long loses its connection; it can resume with a Range."""


class SpanFile:
    """The bytes of `span` of a file positioned at its start; closes the file."""

    def __init__(self, file: RawIOBase, span: ByteRange, sending: Sending | None = None) -> None:
        self._file = file
        self._start = self._sent_to = span.start
        self._left = span.length
        self._sending = sending
        self.fileno = file.fileno
        if sending is not None:
            sending.began()

    @property
    def sent_bytes(self) -> int:
        """Bytes sent so far."""
        return self._sent_to - self._start

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end of the span."""
        block = self._file.read(min(size, self._left)) or b""
        self._left -= len(block)
        self._sent_to += len(block)
        return block

    def seek(self, position: int) -> int:
        """Called by socket.sendfile() with the position up to which it has sent."""
        self._sent_to = position
        return self._file.seek(position)

    def close(self) -> None:
        """Close the file; the server calls this even if not everything was sent."""
        if self._sending is not None and not self._file.closed:
            self._sending.ended(self.sent_bytes)
        self._file.close()


def span_body(environ: dict[str, Any], file: RawIOBase, span: ByteRange) -> Iterable[bytes]:
    """The bytes of `span` as a body; the response's `Content-Length` must be the span's length.

    `file` is positioned at its start, and closed afterwards.
    """
    bound_sending(environ, IDLE_SECONDS)
    wrap = environ.get("wsgi.file_wrapper", FileWrapper)
    spanned = SpanFile(file, span, environ.get(SENDING_KEY))
    environ[SENT_FILE_KEY] = spanned
    body: Iterable[bytes] = wrap(spanned, READ_BYTES)
    return body


COPIED_BYTES = 64 * 1024
"""Size of one read, and all that a transfer holds in memory: a thousand slow readers hold a
thousand of these."""


def blocks_of(file: RawIOBase, span: ByteRange, block_bytes: int = COPIED_BYTES) -> Iterator[bytes]:
    """The bytes of `span`, in blocks, each read once the previous one is sent.

    Raises `OSError` if the file is too short, which ends the response: the client would take
    anything sent later for the missing bytes.
    """
    for start in range(span.start, span.end, block_bytes):
        count = min(block_bytes, span.end - start)
        block = read_fully(file, start, count)  # One read from a bucket may give a few KiB.
        yield block
        if len(block) < count:
            raise _too_short()


def _too_short() -> OSError:
    return OSError(errno.EIO, "the file is shorter than expected")


# ---- pieces --------------------------------------------------------------------------------------

# The body of a response that consists of literal bytes and parts of a stored file.


BLOCK_BYTES = 256 * 1024
"""Pieces are read and sent in blocks of about this size. A longer one is sent by the kernel."""

BRIDGED_BYTES = 16 * 1024
"""Spans with a gap up to this are read together: a read costs about as much as copying the gap."""


class PiecesBody:
    """The pieces in order, each read once those before it are sent; then closes `resources`."""

    def __init__(
        self,
        pieces: Iterable[Piece],
        source: RawIOBase,
        resources: ExitStack,
        *,
        kernel: KernelSender | None = None,
        sending: Sending | None = None,
    ) -> None:
        self._pieces = pieces
        self._source = source
        self._resources = resources
        self._kernel = kernel
        self._sending = sending
        self._is_closed = False
        self.sent_bytes = 0
        """Bytes sent so far."""
        if sending is not None:
            sending.began()

    def __iter__(self) -> Iterator[bytes]:
        held = bytearray()
        for group in _groups(self._pieces):
            if isinstance(group, bytes):
                held += group
            elif self._kernel is not None and group[0].length > BLOCK_BYTES:
                # Even if it is empty: with the first block the server sends the headers.
                yield self._counted(held)
                self._source.seek(group[0].start)
                try:
                    self._kernel(self._source, group[0])
                finally:  # Players disconnect at every seek.
                    self.sent_bytes += self._source.tell() - group[0].start
            elif group[-1].end - group[0].start <= BLOCK_BYTES:
                self._gather(group, held)
            else:
                for block in blocks_of(self._source, group[0], BLOCK_BYTES):
                    held += block
                    yield self._counted(held)
            if len(held) >= BLOCK_BYTES:
                yield self._counted(held)
        yield self._counted(held)

    def close(self) -> None:
        """Close the resources; the server calls this even if not everything was sent."""
        if not self._is_closed:
            self._is_closed = True
            self._resources.close()
            if self._sending is not None:
                self._sending.ended(self.sent_bytes)

    def _gather(self, spans: Sequence[ByteRange], held: bytearray) -> None:
        """Append a span, or several close to each other, to `held` with one read."""
        start = spans[0].start
        count = spans[-1].end - start
        data = memoryview(read_fully(self._source, start, count))
        if len(data) < count:
            raise _too_short()
        for span in spans:
            held += data[span.start - start : span.end - start]

    def _counted(self, held: bytearray) -> bytes:
        block = bytes(held)
        held.clear()
        self.sent_bytes += len(block)
        return block


def _groups(pieces: Iterable[Piece]) -> Iterator[bytes | list[ByteRange]]:
    """Literal bytes unchanged, and spans: alone, or as many as one read gets cheaply."""
    group: list[ByteRange] = []
    for piece in pieces:
        is_near = (
            isinstance(piece, ByteRange)
            and group
            and 0 <= piece.start - group[-1].end <= BRIDGED_BYTES
            and piece.end - group[0].start <= BLOCK_BYTES
        )
        if group and not is_near:
            yield group
            group = []
        if isinstance(piece, bytes):
            yield piece
        else:
            group.append(piece)
    if group:
        yield group


def pieces_body(
    environ: dict[str, Any], pieces: Iterable[Piece], source: RawIOBase, resources: ExitStack
) -> PiecesBody:
    """The pieces as a body; `source` must be among the `resources`, which are closed afterwards."""
    bound_sending(environ, IDLE_SECONDS)
    kernel = kernel_sender(environ) if isinstance(source, FileIO) else None
    sending = environ.get(SENDING_KEY)
    body = PiecesBody(pieces, source, resources, kernel=kernel, sending=sending)
    environ[SENT_FILE_KEY] = body
    return body


# ---- byteranges ----------------------------------------------------------------------------------

# The body of a response to several ranges: multipart/byteranges (RFC 9110, section 14.6).


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
        """Delimiter and headers before the bytes of a part."""
        return (
            f"\r\n--{self.boundary}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Range: {content_range(span, self.length)}\r\n\r\n"
        ).encode("ascii")

    @property
    def tail(self) -> bytes:
        """The closing delimiter after the last part."""
        return f"\r\n--{self.boundary}--\r\n".encode("ascii")

    @property
    def content_length(self) -> int:
        """Bytes of the body."""
        parts = sum(len(self.head(span)) + span.length for span in self.spans)
        return parts + len(self.tail)


class PartsOfFile:
    """The body in blocks, each read once the one before is sent; closes the file.

    The idle timeout is the listener's (`gunicorn_conf.SEND_IDLE_SECONDS`). A timeout of the socket
    itself would apply to a whole block, and be too short for slow links.
    """

    def __init__(self, file: RawIOBase, layout: Layout, sending: Sending | None = None) -> None:
        self._file = file
        self._layout = layout
        self._sending = sending
        self._sent = 0
        if sending is not None:
            sending.began()

    def __iter__(self) -> Iterator[bytes]:
        for span in self._layout.spans:
            head = self._layout.head(span)
            for block in blocks_of(self._file, span):
                yield head + block
                self._sent += len(block)
                head = b""
        yield self._layout.tail

    def close(self) -> None:
        """Close the file; the server calls this even if not everything was sent."""
        if self._sending is not None and not self._file.closed:
            self._sending.ended(self._sent)
        self._file.close()
