"""gunicorn's threaded worker, for clients that take their time.

A thread a connection, as many as there are connections; but only `threads` requests run at once.
One that waits for its client's bytes, or for its client to take the answer, does not count: so a
thousand slow uploads hold up nobody. And headers have a deadline.
"""

from __future__ import annotations

import gc
import select
import socket
import ssl
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gunicorn.workers.gthread import ThreadWorker

from app.ingest.turns import Turns, turn
from app.request_threads import RequestThreads

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

HEADER_SECONDS = 30.0
"""From the first byte of a request to the end of its headers. A client that drips them, a byte
every few seconds, would hold its thread for ever: gunicorn itself has no such limit."""

FOLLOW_SECONDS = 0.02
"""How long a thread stays with its connection after an answer; it holds no turn meanwhile. A client
that is at it sends its next request at once. To hand each from thread to thread, as gunicorn does,
costs 0.17 of the CPU time of a range of 64 KiB, and 0.1 of that of a chunk of 64 KiB."""

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """Waits for slow clients without making others wait. Hooks run what they override besides."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reading_headers: dict[Any, float] = {}

    def get_thread_pool(self) -> Executor:
        """Threads are made as they are needed; there are no more than `worker_connections`."""
        return RequestThreads()

    def load_wsgi(self) -> None:
        """Runs once, before requests are served."""
        super().load_wsgi()
        gc.freeze()  # What the program consists of need not be looked at in each collection.
        self.wsgi: Any = TurnTaking(self.wsgi, self.cfg.threads)

    def handle(self, conn: Any) -> Any:
        """Runs in a thread: for a request, and for those that follow on its connection at once."""
        outcome = self._handle_one(conn)
        while outcome is True and self.alive and _goes_on(conn):
            outcome = self._handle_one(conn)
        return outcome

    def _handle_one(self, conn: Any) -> Any:
        self._reading_headers[conn] = time.monotonic() + HEADER_SECONDS
        try:
            outcome = super().handle(conn)
            if outcome is True:
                _take_what_tls_holds(conn)
            return outcome
        finally:
            self._reading_headers.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Runs in the same thread, once the headers are there."""
        self._reading_headers.pop(conn, None)
        return super().handle_request(req, conn)

    def is_parent_alive(self) -> bool:
        """Runs about once a second in the main thread; without its parent the worker stops.

        gunicorn's leaves its loop then, but threads would follow their clients for ever.
        """
        if super().is_parent_alive():
            return True
        self.alive = False
        return False

    def murder_pending(self) -> None:
        """Runs about once a second in the main thread."""
        super().murder_pending()
        now = time.monotonic()
        for conn, deadline in list(self._reading_headers.items()):
            if now > deadline:
                with suppress(OSError):
                    conn.sock.shutdown(socket.SHUT_RD)


def _goes_on(conn: Any) -> bool:
    """Whether more has come on a connection that is kept, or comes within `FOLLOW_SECONDS`."""
    if conn.parser.unreader.buf.tell():
        return True
    poll = select.poll()
    poll.register(conn.sock, select.POLLIN)
    return bool(poll.poll(FOLLOW_SECONDS * 1000))


def _take_what_tls_holds(conn: Any) -> None:
    """Of a connection that is kept: TLS may have read the next request, which poll() cannot see.

    Where gunicorn's own buffer has something in it, the thread goes on at once.
    """
    unreader = conn.parser.unreader
    if isinstance(conn.sock, ssl.SSLSocket) and not unreader.buf.tell():
        count = conn.sock.pending()
        if count:
            unreader.unread(conn.sock.recv(count))


class TurnTaking:
    """Middleware: lets so many requests run at once, of those that read and of those that write.

    Writers wait for the disk; who only wants to look does not wait for them. A request that waits
    for its client or for another request gives its turn up. The answer is sent after the turn.
    """

    def __init__(self, app: WSGIApplication, count: int) -> None:
        self._app = app
        self._reading = Turns(count)
        self._writing = Turns(count)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Run the request when it is its turn."""
        is_read = environ["REQUEST_METHOD"] in READ_METHODS
        with turn(self._reading if is_read else self._writing):
            return self._app(environ, start_response)
