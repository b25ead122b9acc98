"""gunicorn's threaded worker, with a deadline for the headers of a request."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

HEADER_SECONDS = 30.0
"""From the first byte of a request to the end of its headers. A client that drips them, a byte
every few seconds, would hold its thread for ever: gunicorn itself has no such limit."""


class DeadlineWorker(ThreadWorker):  # type: ignore[misc]
    """Ends connections whose headers do not end. Each hook runs what it overrides besides."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reading_headers: dict[Any, float] = {}

    def handle(self, conn: Any) -> Any:
        """Runs in a thread, for one request; before its headers are read."""
        self._reading_headers[conn] = time.monotonic() + HEADER_SECONDS
        try:
            return super().handle(conn)
        finally:
            self._reading_headers.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Runs in the same thread, once the headers are there."""
        self._reading_headers.pop(conn, None)
        return super().handle_request(req, conn)

    def murder_pending(self) -> None:
        """Runs about once a second in the main thread."""
        super().murder_pending()
        now = time.monotonic()
        for conn, deadline in list(self._reading_headers.items()):
            if now > deadline:
                with suppress(OSError):
                    conn.sock.shutdown(socket.SHUT_RD)
