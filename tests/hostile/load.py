"""Clients that upload without pause, and remember what was acknowledged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Event
from typing import Any

import requests

from tests.dropzone_client import ChunkedFile, form_headers, random_bytes
from tests.live_server import Server
from tests.waiting import wait_until

CHUNK_BYTES = 64 * 1024
MOST_CHUNKS = 6


@contextmanager
def working(work: Callable[[Event, int], None], clients: int) -> Iterator[None]:
    """`work(stop, number)` in `clients` threads; the end of the context sets `stop` and waits."""
    stop = Event()
    with ThreadPoolExecutor(clients) as pool:
        tasks = [pool.submit(work, stop, number) for number in range(clients)]
        try:
            yield
        finally:
            stop.set()
        for task in tasks:
            task.result()


@dataclass
class Load:
    """What one server acknowledged to its clients."""

    server: Server
    stored: dict[str, str] = field(default_factory=dict)
    """SHA-256 by the id of a complete upload."""
    begun: dict[str, int] = field(default_factory=dict)
    """Bytes acknowledged by the id of an upload that was left unfinished."""
    refused: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Status and code of refused requests."""

    def running(self, clients: int) -> AbstractContextManager[None]:
        """Clients that upload until the context ends."""
        return working(self._upload_until, clients)

    def run(self, seconds: float, *, clients: int = 4) -> Counter[tuple[int, str]]:
        """Upload for that long, and until some file is stored or refused; what was refused."""
        before, ended = self.refused.copy(), self._ended
        with self.running(clients):
            time.sleep(seconds)
            wait_until(lambda: self._ended > ended, "a file is stored or refused")
        return self.refused - before

    @property
    def _ended(self) -> int:
        """How many files were stored or refused."""
        return len(self.stored) + self.refused.total()

    def refusals(self, seconds: float) -> Counter[tuple[int, str]]:
        """The same, repeated until something is refused, or 100 times.

        A database whose disk is full still has some room in its own files.
        """
        rounds = (self.run(seconds) for _ in range(100))
        return next((refused for refused in rounds if refused), Counter())

    def check(self) -> None:
        """Assert that everything acknowledged is stored."""
        for upload_id, sha256 in self.stored.items():
            answer = self.server.get(f"/media/{upload_id}")
            assert answer.status_code == 200, (upload_id, answer.text)
            assert ChunkedFile(answer.content, 1).sha256 == sha256
        for upload_id, acknowledged in self.begun.items():
            document = self.server.get(f"/api/uploads/{upload_id}").json()
            assert document["offset"] >= acknowledged, document

    def _upload_until(self, stop: Event, number: int) -> None:
        rng = Random(f"{number} {len(self.stored)} {len(self.begun)}")
        with requests.Session() as session:
            while not stop.is_set():
                file = ChunkedFile(
                    random_bytes(rng.randint(1, MOST_CHUNKS) * CHUNK_BYTES, rng.getrandbits(32)),
                    CHUNK_BYTES,
                )
                self._upload(session, file)
                time.sleep(0.01)

    def _upload(self, session: requests.Session, file: ChunkedFile) -> None:
        upload_id = ""
        for index in range(file.count):
            answer = session.post(
                f"{self.server.url}/upload",
                data=file.body(index),
                headers=form_headers(),
                timeout=120,
            )
            document: dict[str, Any] = answer.json()
            if answer.status_code != 200:
                self.refused[answer.status_code, document["code"]] += 1
                return
            upload_id = document["id"]
            self.begun[upload_id] = document["received"]
        if document["complete"]:
            del self.begun[upload_id]
            self.stored[upload_id] = file.sha256
