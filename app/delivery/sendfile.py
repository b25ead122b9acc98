"""Hands an open file to the server in the one way that lets the kernel send it.

gunicorn calls sendfile() when the application returns the server's own `wsgi.file_wrapper`: from
the file's position on, as many bytes as Content-Length says. Flask's `send_file` loses both on a
range: it wraps the file again, and then reads it through Python from byte 0.
"""

from __future__ import annotations

from io import RawIOBase
from typing import Any

from werkzeug.wrappers import Response
from werkzeug.wsgi import FileWrapper

from app.domain.ranges import ByteRange
from app.ingest.gunicorn_socket import bound_sending

READ_BYTES = 1024 * 1024
"""Block for servers and transports that cannot sendfile (TLS, HTTP/2)."""

IDLE_SECONDS = 60.0
"""A client that takes nothing for so long loses its connection, and can resume with a Range."""


class SpanFile:
    """The bytes of `span` of an open file that stands at its start; closes the file."""

    def __init__(self, file: RawIOBase, span: ByteRange) -> None:
        self._file = file
        self._left = span.length
        self.close = file.close
        self.fileno = file.fileno
        self.seek = file.seek  # socket.sendfile() wants it when it falls back to reading.

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end of the span."""
        block = self._file.read(min(size, self._left)) or b""
        self._left -= len(block)
        return block


def send_span(environ: dict[str, Any], file: RawIOBase, span: ByteRange) -> Response:
    """A response with the bytes of `span`; `file` stands at its start and is closed after."""
    bound_sending(environ, IDLE_SECONDS)
    wrap = environ.get("wsgi.file_wrapper", FileWrapper)
    response = Response(wrap(SpanFile(file, span), READ_BYTES), direct_passthrough=True)
    response.content_length = span.length
    return response
