"""The body of an answer that consists of literal bytes and of parts of a stored file."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import FileIO, RawIOBase
from typing import Any

from app.core.ranges import ByteRange
from app.deliver.sendfile import IDLE_SECONDS, SENT_FILE_KEY
from app.http.context import SENDING_KEY, Sending
from app.ingest.gunicorn_socket.connection import KernelSender, bound_sending, kernel_sender
from app.video.index.virtual_file import Piece
from app.video.serve.source import read_fully

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
        """How many bytes have gone out."""
        if sending is not None:
            sending.began()

    def __iter__(self) -> Iterator[bytes]:
        held = bytearray()
        for group in _groups(self._pieces):
            if isinstance(group, bytes):
                held += group
            elif self._kernel is not None and group[0].length > BLOCK_BYTES:
                # Even if it is empty: the server sends the headers first.
                yield self._counted(held)
                self._send_past_the_server(self._kernel, group[0])
            elif len(group) > 1:
                self._gather(group, held)
            else:
                yield from self._blocks(group[0], held)
            if len(held) >= BLOCK_BYTES:
                yield self._counted(held)
        yield self._counted(held)

    def close(self) -> None:
        """Close what was read from; the server calls this even if not everything was sent."""
        if not self._is_closed:
            self._is_closed = True
            self._resources.close()
            if self._sending is not None:
                self._sending.ended(self.sent_bytes)

    def _send_past_the_server(self, kernel: KernelSender, span: ByteRange) -> None:
        """Count what was sent also if the client leaves: players do so at every seek."""
        self._source.seek(span.start)
        try:
            kernel(self._source, span)
        finally:
            self.sent_bytes += self._source.tell() - span.start

    def _gather(self, spans: Sequence[ByteRange], held: bytearray) -> None:
        """Append short spans that are close to each other to `held`, with one read for all."""
        start = spans[0].start
        count = spans[-1].end - start
        data = memoryview(read_fully(self._source, start, count))
        if len(data) < count:
            raise _too_short()
        for span in spans:
            held += data[span.start - start : span.end - start]

    def _blocks(self, span: ByteRange, held: bytearray) -> Iterator[bytes]:
        """Append the bytes of `span` to `held`, and take them out as full blocks."""
        position = span.start
        while position < span.end:
            self._source.seek(position)
            block = self._source.read(min(BLOCK_BYTES, span.end - position))
            if not block:
                raise _too_short()
            position += len(block)
            held += block
            if len(held) >= BLOCK_BYTES:
                yield self._counted(held)

    def _counted(self, held: bytearray) -> bytes:
        block = bytes(held)
        held.clear()
        self.sent_bytes += len(block)
        return block


def _groups(pieces: Iterable[Piece]) -> Iterator[bytes | list[ByteRange]]:
    """Literal bytes as they are, and spans: alone, or as many as one read gets cheaply."""
    group: list[ByteRange] = []
    for piece in pieces:
        if group and not (isinstance(piece, ByteRange) and _continues(group, piece)):
            yield group
            group = []
        if isinstance(piece, bytes):
            yield piece
        else:
            group.append(piece)
    if group:
        yield group


def _continues(group: Sequence[ByteRange], span: ByteRange) -> bool:
    gap = span.start - group[-1].end
    return 0 <= gap <= BRIDGED_BYTES and span.end - group[0].start <= BLOCK_BYTES


def _too_short() -> OSError:
    """Anything sent after this would be taken for the missing bytes."""
    return OSError(errno.EIO, "the file is shorter than its index says")


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
