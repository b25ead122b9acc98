"""A chunked request body, from the connection's own socket."""

from __future__ import annotations

from gunicorn.http.body import Body
from gunicorn.http.errors import ParseException

from app.core.errors import BodyStalled, BodyTruncated, ChunkMismatch, MalformedBody
from app.ingest.chunked import ChunkedDecoder
from app.ingest.client_socket import ClientSocket
from app.ingest.source import IDLE_TICK_SECONDS, Watch, no_watch
from app.ingest.stages import note_arrival

FRAMING_BYTES = 8192
"""Size of a read when the next line of the chunked coding is expected."""

END_SECONDS = 10.0
"""How long the end of a chunked body may take after its last byte."""


class GunicornChunkedSource:
    """A chunked request body, read from the connection's own socket.

    gunicorn's reader cannot distinguish an idle client from a slow one, and loses the bytes that
    arrived before a connection broke.
    """

    is_verified_at_end = False

    def __init__(self, body: Body, client: ClientSocket, remaining: int | None) -> None:
        self._body = body
        self._client = client
        self._remaining = remaining
        self._head = body.reader.req.unreader.take_buffered()
        self._decoder = ChunkedDecoder()
        body.failed = True

    @property
    def remaining(self) -> int | None:
        """Bytes still to come, if another header says so, or all have been read."""
        return self._remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Payload that was read along with the coding's lines first, then one `recv_into`."""
        wanted = buffer if self._remaining is None else buffer[: self._remaining]
        if not wanted:
            return 0
        while not self._decoder.data_left:
            if self._decoder.has_ended:
                return self._ended()
            if not self._feed():
                return None
        return self._take(wanted)

    def finish(self, watch: Watch = no_watch, /) -> None:
        """Read the end of the coding; raises `ChunkMismatch` if more bytes come instead."""
        self._remaining, probe, waited = None, memoryview(bytearray(1)), 0.0
        while (count := self.readinto(probe)) != 0:
            if count:
                raise ChunkMismatch("The body is longer than it should be.")
            watch()
            waited += IDLE_TICK_SECONDS
            if waited > END_SECONDS:
                raise BodyStalled("The end of the body did not arrive.")

    def _feed(self) -> bool:
        """Feed the next bytes to the decoder; False after a tick without any."""
        self._decoder.require_intact()
        data, self._head = self._head, b""
        if not data:
            if not self._client.wait(1):
                return False
            data = self._client.recv(FRAMING_BYTES)
        if not data:
            raise BodyTruncated("The body ended in the middle of its coding.")
        self._decoder.feed(data)
        return True

    def _take(self, wanted: memoryview) -> int | None:
        count = self._decoder.take(wanted)
        if not count:
            wanted = wanted[: self._decoder.data_left]
            if not self._client.wait(len(wanted)):
                return None
            count = self._client.recv_into(wanted)
            if not count:
                raise BodyTruncated("The body ended in the middle of a chunk.")
            self._decoder.passed(count)
        note_arrival(count)
        if self._remaining is not None:
            self._remaining -= count
        return count

    def _ended(self) -> int:
        if self._body.failed:
            self._release()
        if self._remaining:
            raise ChunkMismatch(f"The body is {self._remaining} bytes too short.")
        self._remaining = 0
        return 0

    def _release(self) -> None:
        """Restore the connection to gunicorn's state after reading a body itself."""
        reader, trailers = self._body.reader, self._decoder.trailers
        if trailers:
            try:
                reader.req.trailers = reader.req.parse_headers(trailers, from_trailer=True)
            except ParseException as error:
                raise MalformedBody("The trailers of the body are malformed.") from error
        reader.parser = None
        reader.req.unreader.unread(self._decoder.leftover)
        self._client.release()
        self._body.failed = False
