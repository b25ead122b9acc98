"""Takes over reading a request's body from gunicorn, if possible, and its trailers once it is read.

gunicorn hands the application a `Body` over a `LengthReader` over a `SocketUnreader`. Instead:

- the bytes that came with the headers are in the unreader's buffer and come first;
- bytes in it that belong to the next, pipelined request are put back;
- the reader's length is set to 0, or a chunked reader's parser to None, so that gunicorn sees a
  body read to its end and keeps the connection alive;
- if the body is not read to its end after all, `Body.failed` makes gunicorn close the connection.

These are private names of gunicorn 27, guarded by a test against the pinned release. If anything
looks different, the caller reads through `wsgi.input`.
"""

from __future__ import annotations

import socket
from inspect import GEN_CREATED, getgeneratorstate
from typing import Any

from gunicorn.http.body import Body, ChunkedReader, LengthReader

from app.ingest.client_socket import ClientSocket
from app.ingest.gunicorn_socket.body import GunicornSocketSource
from app.ingest.gunicorn_socket.chunked_body import GunicornChunkedSource

Source = GunicornSocketSource | GunicornChunkedSource


def take_over(environ: dict[str, Any], expected_length: int | None = None) -> Source | None:
    """The request's body read from its socket, or None if that is not possible.

    Not possible with other servers, TLS (a splice would store ciphertext), HTTP/2 (one socket for
    all streams), or a body that has been partly read. `expected_length` is the length of a chunked
    body, if another header gives it.
    """
    body: Any = environ.get("wsgi.input")
    connection = environ.get("gunicorn.socket")
    if type(body) is not Body or type(connection) is not socket.socket:
        return None
    if body.buf.tell() or connection.gettimeout() == 0.0 or environ.get("HTTP_VERSION") == "2":
        return None
    client = ClientSocket(connection)
    if type(body.reader) is LengthReader:
        return _take_over_length(body, client)
    if type(body.reader) is ChunkedReader and _is_untouched(body.reader):
        return GunicornChunkedSource(body, client, expected_length)
    return None


def _take_over_length(body: Body, client: ClientSocket) -> GunicornSocketSource:
    reader = body.reader
    head, length = reader.unreader.take_buffered(), reader.length
    if len(head) > length:
        reader.unreader.unread(head[length:])
        head = head[:length]
    reader.length = 0
    return GunicornSocketSource(body, client, head, length)


def trailers(environ: dict[str, Any]) -> list[tuple[str, str]] | None:
    """Trailer fields of a chunked body that has been read to its end; None on other servers."""
    body: Any = environ.get("wsgi.input")
    if type(body) is not Body or environ.get("HTTP_VERSION") == "2":
        return None
    return list(body.reader.req.trailers) if type(body.reader) is ChunkedReader else []


def _is_untouched(reader: ChunkedReader) -> bool:
    return reader.parser is not None and getgeneratorstate(reader.parser) == GEN_CREATED
