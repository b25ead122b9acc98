"""A request body of known length, from the connection's own socket."""

from __future__ import annotations

from gunicorn.http.body import Body

from app.core.errors import BodyTruncated
from app.ingest.client_socket import ClientSocket
from app.ingest.source import SpliceSource, Watch, no_watch
from app.ingest.stages import note_arrival


class GunicornSocketSource(SpliceSource):
    """The rest of a request body, read from the connection's own socket."""

    is_verified_at_end = False

    def __init__(self, body: Body, client: ClientSocket, head: bytes, remaining: int) -> None:
        self._body = body
        self._client = client
        self._head = memoryview(head)
        self._remaining = remaining
        body.failed = remaining > 0  # Until its last byte is read, the connection cannot be reused.

    @property
    def remaining(self) -> int | None:
        """Bytes still to come."""
        return self._remaining

    def readinto(self, buffer: memoryview, /) -> int | None:
        """The bytes that came with the headers first, then one `recv_into`."""
        wanted = buffer[: self._remaining]
        if not wanted:
            return 0
        if self._head:
            return self._took(self._take_head(wanted))
        has_come = self.wait(len(wanted))
        return self._received(self._client.recv_into(wanted)) if has_come else None

    @property
    def can_splice(self) -> bool:
        """Whether the bytes that came with the headers have been taken."""
        return not self._head

    def wait(self, count: int) -> bool:
        """Wait for bytes that are still to come."""
        return self._client.wait(min(count, self._remaining))

    def splice_into(self, pipe: int, count: int) -> int:
        """One splice() from the socket."""
        count = min(count, self._remaining)
        return self._received(self._client.splice(pipe, count)) if count else 0

    def finish(self, _watch: Watch = no_watch, /) -> None:
        """Does nothing: nothing follows a body of known length."""

    def _take_head(self, wanted: memoryview) -> int:
        count = min(len(wanted), len(self._head))
        wanted[:count] = self._head[:count]
        self._head = self._head[count:]
        return count

    def _received(self, count: int) -> int:
        if count == 0:
            raise BodyTruncated(f"The body ended {self._remaining} bytes early.")
        return self._took(count)

    def _took(self, count: int) -> int:
        note_arrival(count)
        self._remaining -= count
        if self._remaining == 0:
            self._release()
        return count

    def _release(self) -> None:
        """Restore the connection to gunicorn's state, ready for the next request."""
        self._client.release()
        self._body.failed = False
