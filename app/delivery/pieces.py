"""The body of an answer that consists of literal bytes and of parts of a stored file."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from io import RawIOBase
from typing import Any

from app.delivery.sendfile import IDLE_SECONDS, SENT_FILE_KEY
from app.domain.ranges import ByteRange
from app.http.context import SENDING_KEY, Sending
from app.ingest.gunicorn_socket.connection import KernelSender, bound_sending, kernel_sender
from app.media.index.virtual_file import Piece

BLOCK_BYTES = 256 * 1024
"""Pieces are read and sent in blocks of about this size. A longer one is sent by the kernel."""


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
        for piece in self._pieces:
            if isinstance(piece, bytes):
                held += piece
            elif self._kernel is not None and piece.length > BLOCK_BYTES:
                # Even if it is empty: the server sends the headers first.
                yield self._counted(held)
                self._kernel(self._source, piece)
                self.sent_bytes += piece.length
            else:
                yield from self._blocks(piece, held)
        yield self._counted(held)

    def close(self) -> None:
        """Close what was read from; the server calls this even if not everything was sent."""
        if not self._is_closed:
            self._is_closed = True
            self._resources.close()
            if self._sending is not None:
                self._sending.ended(self.sent_bytes)

    def _blocks(self, span: ByteRange, held: bytearray) -> Iterator[bytes]:
        """Append the bytes of `span` to `held`, and take them out as full blocks."""
        position = span.start
        while position < span.end:
            self._source.seek(position)
            block = self._source.read(min(BLOCK_BYTES, span.end - position))
            if not block:
                # Anything sent now would be taken for the missing bytes.
                raise OSError(errno.EIO, "the file is shorter than its index says")
            position += len(block)
            held += block
            if len(held) >= BLOCK_BYTES:
                yield self._counted(held)

    def _counted(self, held: bytearray) -> bytes:
        block = bytes(held)
        held.clear()
        self.sent_bytes += len(block)
        return block


def pieces_body(
    environ: dict[str, Any], pieces: Iterable[Piece], source: RawIOBase, resources: ExitStack
) -> PiecesBody:
    """The pieces as a body; `source` must be among the `resources`, which are closed afterwards."""
    bound_sending(environ, IDLE_SECONDS)
    kernel, sending = kernel_sender(environ), environ.get(SENDING_KEY)
    body = PiecesBody(pieces, source, resources, kernel=kernel, sending=sending)
    environ[SENT_FILE_KEY] = body
    return body
