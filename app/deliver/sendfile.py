"""Hands an open file to the server in the only way that lets the kernel send it.

gunicorn calls sendfile() when the application returns the server's own `wsgi.file_wrapper`: from
the file's position on, as many bytes as Content-Length says. With a range Flask's `send_file` loses
both: it wraps the file again, and Python reads it from byte 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import RawIOBase
from typing import Any

from werkzeug.wsgi import FileWrapper

from app.core.ranges import ByteRange
from app.http.context import SENDING_KEY, Sending
from app.ingest.gunicorn_socket.connection import bound_sending

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
        """How many of its bytes have gone out."""
        return self._sent_to - self._start

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end of the span."""
        block = self._file.read(min(size, self._left)) or b""
        self._left -= len(block)
        self._sent_to += len(block)
        return block

    def seek(self, position: int) -> int:
        """Called by socket.sendfile(), with the end of what it has sent."""
        self._sent_to = position
        return self._file.seek(position)

    def close(self) -> None:
        """Close the file; the server calls this even if not everything was sent."""
        if self._sending is not None and not self._file.closed:
            self._sending.ended(self.sent_bytes)
        self._file.close()


def span_body(environ: dict[str, Any], file: RawIOBase, span: ByteRange) -> Iterable[bytes]:
    """The bytes of `span` as a body; the answer's `Content-Length` must be the span's length.

    `file` is positioned at its start, and closed afterwards.
    """
    bound_sending(environ, IDLE_SECONDS)
    wrap = environ.get("wsgi.file_wrapper", FileWrapper)
    spanned = SpanFile(file, span, environ.get(SENDING_KEY))
    environ[SENT_FILE_KEY] = spanned
    body: Iterable[bytes] = wrap(spanned, READ_BYTES)
    return body
