"""Clients that read a large file slowly block no one."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import pytest

from tests.deliver.stored import Stored, store
from tests.dropzone_client import random_bytes
from tests.live_server import NO_FFMPEG, running_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

READERS = 40
THREADS = 2
LENGTH = 50_000_000
CONTENT = random_bytes(LENGTH, 91)
RECEIVE_BUFFER_BYTES = 8192
"""As small as possible, so that the server notices the slow client."""

TRICKLE_BYTES = 2048
PAUSE_SECONDS = 0.2

WHOLE = ""
ONE_RANGE = "Range: bytes=1000000-\r\n"
TWO_RANGES = "Range: bytes=0-24999999,25000001-\r\n"


@dataclass
class Readers:
    """Connections that one thread reads from, a little at a time."""

    connections: list[socket.socket]
    received: dict[socket.socket, bytes] = field(default_factory=dict)
    stopped: Event = field(default_factory=Event)

    def run(self) -> None:
        """Read until told to stop."""
        with selectors.DefaultSelector() as selector:
            for connection in self.connections:
                selector.register(connection, selectors.EVENT_READ, connection)
            while not self.stopped.wait(PAUSE_SECONDS):
                for key, _ in selector.select(0):
                    self.take(key.data)

    def take(self, connection: socket.socket) -> None:
        """Read a little from each."""
        before = self.received.get(connection, b"")
        self.received[connection] = before + connection.recv(TRICKLE_BYTES)

    @property
    def served(self) -> int:
        """How many connections have received something."""
        return len(self.received)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    options = {"SLUICE_WORKERS": "1", "SLUICE_THREADS": str(THREADS), **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("slow"), **options) as server:
        yield store(server, "film.mp4", CONTENT)


@contextmanager
def slow_readers(film: Stored, headers: str) -> Iterator[Readers]:
    """Many clients that request the file and read it slowly."""
    with ExitStack() as stack:
        connections = [stack.enter_context(ask(film, headers)) for _ in range(READERS)]
        readers = Readers(connections)
        thread = Thread(target=readers.run)
        thread.start()
        try:
            yield readers
        finally:
            readers.stopped.set()
            thread.join()


def ask(film: Stored, headers: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", film.server.port))
    connection.sendall(f"GET {film.path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    return connection


@pytest.mark.parametrize("headers", [WHOLE, ONE_RANGE, TWO_RANGES])
def test_slow_readers_block_no_one(film: Stored, headers: str) -> None:
    with slow_readers(film, headers) as readers:
        wait_until(lambda: readers.served == READERS, "all are served")
        assert film.server.get("/", headers={"Accept": "text/html"}).status_code == 200
        other = store(film.server, "other.mp4", CONTENT[:1_000_000])
        assert other.ask("bytes=0-9").content == CONTENT[:10]
        assert film.ask("bytes=0-9,20-29").status_code == 206
        assert max(map(len, readers.received.values())) < LENGTH // 10


@pytest.mark.parametrize("headers", [ONE_RANGE, TWO_RANGES])
def test_slow_readers_get_the_right_bytes(film: Stored, headers: str) -> None:
    with slow_readers(film, headers) as readers:
        wait_until(lambda: readers.served == READERS, "all are served")
        time.sleep(5 * PAUSE_SECONDS)
    starts = [received.partition(b"\r\n\r\n")[2] for received in readers.received.values()]
    expected = CONTENT[1_000_000:] if headers is ONE_RANGE else CONTENT
    for start in starts:
        content = start if headers is ONE_RANGE else start.partition(b"\r\n\r\n")[2]
        assert len(content) > 0
        assert expected.startswith(content)
