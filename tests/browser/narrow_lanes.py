"""A line on which each connection is slow by itself, as where packets get lost."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

BLOCK = 16 * 1024

ROUND_TRIP_SECONDS = 0.5
"""Of each connection, its opening included: long beside what a busy machine adds to it."""


@dataclass
class NarrowLanes:
    """Relays connections to `target`, each late, and with so many bytes per second towards it."""

    target: int
    bytes_per_second: float
    heads: list[str] = field(default_factory=list)
    is_closed: bool = False

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.settimeout(0.1)
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def opened(self, path: str) -> int:
        """How many connections began by getting a path, as WebSockets do."""
        return sum(head.startswith(f"GET {path} ") for head in self.heads)

    def close(self) -> None:
        """End all connections."""
        self.is_closed = True
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.is_closed:
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                self._start(self._relay, client)

    def _relay(self, client: socket.socket) -> None:
        is_first, rest_until = True, 0.0
        answers: deque[tuple[float, bytes]] = deque()
        time.sleep(ROUND_TRIP_SECONDS)
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            while not self.is_closed:
                while answers and answers[0][0] <= time.monotonic():
                    data = answers.popleft()[1]
                    if not data:
                        return
                    with suppress(OSError):
                        client.sendall(data)
                sources = [server] if time.monotonic() < rest_until else [client, server]
                for source in select.select(sources, [], [], 0.01)[0]:
                    data = b""
                    with suppress(OSError):
                        data = source.recv(BLOCK)
                    if source is server:
                        answers.append((time.monotonic() + ROUND_TRIP_SECONDS, data))
                        continue
                    if not data:
                        return
                    if is_first:
                        self.heads.append(data.partition(b"\r\n")[0].decode("latin-1"))
                        is_first = False
                    server.sendall(data)
                    rest_until = time.monotonic() + len(data) / self.bytes_per_second


@contextmanager
def narrow_lanes(target: int, bytes_per_second: float) -> Iterator[NarrowLanes]:
    """The line, for the length of the context."""
    line = NarrowLanes(target, bytes_per_second)
    try:
        yield line
    finally:
        line.close()
