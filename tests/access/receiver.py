"""A receiver of webhooks, as a web server in this process."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass(frozen=True, slots=True)
class Received:
    """One request; the names of its headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[[BaseHTTPRequestHandler], None]


def answer(status: int, **headers: str) -> Behaviour:
    """Answers with this status, without a body."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return behave


@dataclass
class Receiver:
    """Keeps what it got, and behaves as `behaviours` say, in turn; then it answers 204."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    behaviours: list[Behaviour] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def running_receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver on a port of its own, over TLS if there is a context."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append(Received(self.path, headers, body))
            behave = receiver.behaviours.pop(0) if receiver.behaviours else answer(204)
            with suppress(OSError):  # The sender has given up.
                behave(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        receiver.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
