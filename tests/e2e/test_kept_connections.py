"""The worker and a client that sends one request after another on a connection."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import TConn

from app.run.server.gunicorn_worker import SILENT_STOP_SECONDS, PatientWorker
from tests.live_server import Server

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_REQUEST = b"GET /stop HTTP/1.1\r\nHost: localhost\r\n\r\n"
AGES = 60.0


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(AGES)
        self.connection = connection
        self._answers = connection.makefile("rb")

    def close(self) -> None:
        """Close it."""
        self._answers.close()
        self.connection.close()

    def ask(self, request: bytes = REQUEST) -> tuple[str, bytes]:
        """The answer's `Connection` header and body."""
        self.connection.sendall(request)
        return self.answer()

    def answer(self) -> tuple[str, bytes]:
        """The next answer's `Connection` header and body."""
        fields: dict[bytes, bytes] = {}
        status = self._answers.readline()
        if not status:
            raise ConnectionError("closed")
        assert status.startswith(b"HTTP/1.1 200 ")
        while line := self._answers.readline().strip():
            name, _, value = line.partition(b": ")
            fields[name.lower()] = value
        return fields[b"connection"].decode(), self._answers.read(int(fields[b"content-length"]))


class Kept:
    """A connection and its worker; each answer is the number of requests so far."""

    def __init__(
        self, worker: PatientWorker, conn: TConn, client: Client, pool: ThreadPoolExecutor
    ) -> None:
        self.worker = worker
        self.client = client
        self.count = 0
        self._conn = conn
        self._pool = pool
        worker.wsgi = self._application

    def handle(self) -> Future[Any]:
        """Handle the connection in a thread, as gunicorn does."""
        return self._pool.submit(self.worker.handle, self._conn)

    def _application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.count += 1
        if environ["PATH_INFO"] == "/stop":
            self.worker.handle_exit(signal.SIGTERM, None)
        start_response("200 OK", [("Content-Length", "1")])
        return [str(self.count).encode()]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """A connection to a worker that waits long for the next request."""
    config: Any = Config()
    config.set("worker_tmp_dir", str(tmp_path))
    worker = PatientWorker(1, os.getpid(), [], None, 30, config, Logger(config))
    worker.follow_seconds = AGES
    worker.method_queue.init()
    ours, theirs = socket.socketpair()
    conn = TConn(config, ours, ("127.0.0.1", 1), ("127.0.0.1", 2))
    with (
        closing(worker.tmp),
        closing(worker.method_queue),
        ours,
        ThreadPoolExecutor(1) as pool,
        closing(Client(theirs)) as client,
    ):
        yield Kept(worker, conn, client, pool)


def test_consecutive_requests_share_a_thread(kept: Kept) -> None:
    handling = kept.handle()
    assert [kept.client.ask() for _ in range(3)] == [("keep-alive", b"%d" % n) for n in (1, 2, 3)]
    assert not handling.done()
    kept.client.close()
    assert handling.result(AGES) is False


def test_a_silent_client_does_not_keep_its_thread(kept: Kept) -> None:
    kept.worker.follow_seconds = 0.05
    for number in (b"1", b"2"):
        handling = kept.handle()
        assert kept.client.ask() == ("keep-alive", number)
        assert handling.result(AGES) is True, "the connection itself is kept"


def test_requests_sent_in_one_piece_are_all_answered(kept: Kept) -> None:
    handling = kept.handle()
    assert kept.client.ask(REQUEST * 3) == ("keep-alive", b"1")
    assert [kept.client.answer()[1] for _ in range(2)] == [b"2", b"3"]
    assert not handling.done()
    kept.client.close()
    assert handling.result(AGES) is False


def test_a_request_that_comes_in_pieces_is_answered(kept: Kept) -> None:
    kept.handle()
    kept.client.ask(REQUEST + REQUEST[:5])
    for start in range(5, len(REQUEST) - 1, 8):
        time.sleep(0.02)
        kept.client.connection.sendall(REQUEST[start : start + 8])
    assert kept.client.answer() == ("keep-alive", b"2")


def test_silence_between_requests_does_not_count_as_slow_headers(kept: Kept) -> None:
    kept.worker.header_seconds = 0.2
    handling = kept.handle()
    for _ in range(2):
        kept.client.ask()
        time.sleep(0.3)
        kept.worker.murder_pending()
    assert not handling.done()
    kept.client.connection.sendall(REQUEST[:5])
    deadline = time.monotonic() + AGES
    while not handling.done() and time.monotonic() < deadline:
        time.sleep(0.02)
        kept.worker.murder_pending()
    assert handling.result(0) is False


def test_a_stopping_worker_leaves_the_connection_to_gunicorn(kept: Kept) -> None:
    handling = kept.handle()
    assert kept.client.ask(LAST_REQUEST + REQUEST) == ("keep-alive", b"1")
    assert handling.result(AGES) is True
    assert kept.count == 1
    handling = kept.handle()
    assert kept.client.answer() == ("close", b"2")
    assert handling.result(AGES) is False


def test_a_worker_serves_at_most_max_requests(kept: Kept) -> None:
    kept.worker.max_requests = 2
    handling = kept.handle()
    assert [kept.client.ask() for _ in range(2)] == [("keep-alive", b"1"), ("close", b"2")]
    assert handling.result(AGES) is False
    assert not kept.worker.alive


@pytest.mark.e2e
def test_no_request_is_lost_when_the_server_stops(start_server: Callable[..., Server]) -> None:
    """An active client learns from an answer that it was the last one."""
    server = start_server(SLUICE_WORKERS="1")
    with closing(Client(server.connect())) as client:
        assert [client.ask(HEALTH_REQUEST)[0] for _ in range(20)] == ["keep-alive"] * 20
        stopping = Thread(target=server.stop)
        stopping.start()
        ask_until_the_last_answer(client)
        stopping.join(AGES)
    assert not stopping.is_alive()


@pytest.mark.e2e
def test_workers_end_with_a_killed_parent_even_while_a_client_is_active(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    workers = server.web_workers()
    with closing(Client(server.connect())) as client:
        client.ask(HEALTH_REQUEST)
        psutil.Process(workers[0].ppid()).kill()
        ask_until_the_last_answer(client)
        _, alive = psutil.wait_procs(workers, AGES)
    assert not alive


def ask_until_the_last_answer(client: Client) -> None:
    """Send request after request to a server that is stopping.

    It may close the connection of a client that has been silent, as a busy machine makes this one.
    """
    began = last_asked_at = time.monotonic()
    is_kept = True
    while is_kept:
        asked_at = time.monotonic()
        assert asked_at < began + AGES, "the server goes on"
        try:
            is_kept = client.ask(HEALTH_REQUEST)[0] == "keep-alive"
        except ConnectionError:
            assert time.monotonic() > last_asked_at + SILENT_STOP_SECONDS
            return
        last_asked_at = asked_at
