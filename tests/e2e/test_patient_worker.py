"""The worker under many slow clients, with fewer slots than clients."""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

from app.run.server.gunicorn_worker import PROMPT_SECONDS, PatientWorker
from tests.dropzone_client import random_bytes
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.waiting import wait_until

SLOW_CLIENTS = 40
TURNS = 2


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = {"SLUICE_WORKERS": "1", "SLUICE_THREADS": str(TURNS), **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("narrow"), **options) as server:
        yield server


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One process that takes few connections from an address, and soon ends silent bodies."""
    options = {
        "SLUICE_WORKERS": "1",
        "SLUICE_TEST_CONSTANTS": "connections_per_address=3 body_idle_seconds=1",
        **NO_FFMPEG,
    }
    with running_server(tmp_path_factory.mktemp("strict"), **options) as server:
        yield server


@pytest.fixture
def narrow_server(running: Server) -> Server:
    """One process that runs two requests at once; without uploads and videos."""
    running.empty()
    return running


@contextmanager
def half_sent_uploads(server: Server, count: int) -> Iterator[list[str]]:
    """Uploads whose bodies have stalled; their keys."""
    keys = [str(uuid4()) for _ in range(count)]
    with ExitStack() as stack:
        for key in keys:
            connection = stack.enter_context(server.connect())
            connection.sendall(_raw_chunk(key, 100_000) + bytes(50_000))
        yield keys


def _raw_chunk(key: str, length: int) -> bytes:
    path = (
        f"/upload?dzuuid={key}&dzchunkindex=0&dztotalfilesize={length}&dzchunksize={length}"
        "&dztotalchunkcount=1&dzchunkbyteoffset=0&filename=slow.mp4"
    )
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.e2e
def test_stalled_uploads_block_no_one(narrow_server: Server) -> None:
    content = random_bytes(300_000, 1)
    with half_sent_uploads(narrow_server, SLOW_CLIENTS):
        _await_uploads_under_way(narrow_server, SLOW_CLIENTS)
        assert narrow_server.get("/").status_code == 200
        created = narrow_server.post("/api/uploads", json={"name": "a.mp4", "size": 5})
        assert created.status_code == 201
        stored = narrow_server.post("/upload", files={"file": ("b.mp4", content)}).json()
        assert narrow_server.get(stored["media"]).content == content


@pytest.mark.e2e
def test_stalled_uploads_can_continue(narrow_server: Server) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(narrow_server.connect()) for _ in range(SLOW_CLIENTS)]
        for connection in connections:
            connection.sendall(_raw_chunk(str(uuid4()), 100_000) + bytes(50_000))
        _await_uploads_under_way(narrow_server, SLOW_CLIENTS)
        for connection in connections:
            connection.sendall(bytes(50_000))
        answers = [connection.recv(65536) for connection in connections]
    assert [answer.split(b" ", 2)[1] for answer in answers] == [b"200"] * SLOW_CLIENTS
    videos = narrow_server.get("/api/videos?limit=200").json()["videos"]
    assert [video["length"] for video in videos] == [100_000] * SLOW_CLIENTS


@pytest.mark.e2e
def test_many_returning_clients_are_served_at_once(narrow_server: Server) -> None:
    """As after a network outage for everyone: the old requests need slots to end."""
    with half_sent_uploads(narrow_server, SLOW_CLIENTS) as keys, ExitStack() as stack:
        _await_uploads_under_way(narrow_server, SLOW_CLIENTS)
        again = [stack.enter_context(narrow_server.connect()) for _ in keys]
        for connection, key in zip(again, keys, strict=True):
            connection.sendall(_raw_chunk(key, 100_000) + bytes(100_000))
        answers = [connection.recv(65536) for connection in again]
    assert [answer.split(b" ", 2)[1] for answer in answers] == [b"200"] * SLOW_CLIENTS


def _await_uploads_under_way(server: Server, count: int) -> None:
    """Until every upload is recorded with what it has sent."""

    def are_under_way() -> bool:
        uploads = server.get("/api/uploads").json()["uploads"]
        return [upload["offset"] for upload in uploads].count(50_000) >= count

    wait_until(are_under_way, f"all of {count} uploads are under way")


def test_headers_that_never_end_lose_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(ThreadWorker, "handle", lambda _, conn: read.append(conn.sock.recv(10)))
    worker = _worker(tmp_path)
    worker.header_seconds = 0.2
    ours, theirs = socket.socketpair()
    with closing(worker.tmp), ours, theirs:
        handling = Thread(target=worker.handle, args=(_Connection(ours),))
        began = time.monotonic()
        handling.start()
        while handling.is_alive():
            worker.murder_pending()
            time.sleep(0.02)
        assert time.monotonic() > began + worker.header_seconds, "not before its time"
    assert read == [b""], "as if the client had closed"


class _Connection:
    def __init__(self, connection: socket.socket) -> None:
        self.sock = connection


def _worker(folder: Path) -> PatientWorker:
    config: Any = Config()
    config.set("worker_tmp_dir", str(folder))
    return PatientWorker(1, os.getpid(), [], None, 30, config, Logger(config))


@pytest.mark.parametrize("error", [TimeoutError("timed out"), BlockingIOError(11, "again")])
def test_a_client_that_does_not_read_its_answer_is_one_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    worker, said = _worker_that_fails(tmp_path, monkeypatch, error)
    with closing(worker.tmp):
        assert worker.handle_request(_Request(), None) is False
    (record,) = said
    assert "GET /film" in record.getMessage()
    assert record.exc_info is None


def test_a_disk_error_during_an_answer_is_not_blamed_on_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, _ = _worker_that_fails(tmp_path, monkeypatch, OSError(errno.EIO, "broken"))
    with closing(worker.tmp), pytest.raises(OSError, match="broken"):
        worker.handle_request(_Request(), None)


class _Request:
    method, path = "GET", "/film"


def _worker_that_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> tuple[PatientWorker, list[logging.LogRecord]]:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(ThreadWorker, "handle_request", fail)
    worker, said = _worker(folder), list[logging.LogRecord]()
    monkeypatch.setattr(worker.log.error_log, "handle", said.append)
    return worker, said


@pytest.mark.e2e
def test_headers_that_stop_halfway_log_no_traceback(strict_server: Server) -> None:
    server = strict_server
    with server.connect() as connection:
        connection.sendall(b"GET / HT")
        time.sleep(2)
        connection.sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 "), "30 s are for headers"
    assert "raceback" not in server.log


@pytest.mark.e2e
def test_an_address_gets_no_more_than_its_share_of_connections(strict_server: Server) -> None:
    server = strict_server
    with ExitStack() as stack:
        idle = [stack.enter_context(_from("127.0.0.2", server)) for _ in range(3)]
        assert server.get("/healthz").status_code == 200, "it has accepted those before"
        time.sleep(PROMPT_SECONDS + 0.5)
        busy = [stack.enter_context(_from("127.0.0.2", server, b"GET / HT")) for _ in range(3)]
        assert [connection.recv(10) for connection in idle] == [b""] * 3, "they made room"
        refused = stack.enter_context(_from("127.0.0.2", server))
        assert _is_closed(refused)
        for connection in (*busy, stack.enter_context(_from("127.0.0.3", server, b"GET / HT"))):
            connection.sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        assert "127.0.0.2, which has 3 open, the most for one address" in server.log
        assert [server.get("/healthz").status_code for _ in range(5)] == [200] * 5


def _from(address: str, server: Server, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(
        ("127.0.0.1", server.port), timeout=60, source_address=(address, 0)
    )
    connection.sendall(sent)
    return connection


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(10) == b""
    except ConnectionResetError:
        return True


@pytest.mark.e2e
def test_a_full_worker_closes_its_idlest_connection(
    start_server: Callable[..., Server],
) -> None:
    """Catches a worker that lets new visitors wait instead."""
    server = start_server(
        SLUICE_WORKERS="1", SLUICE_THREADS="2", GUNICORN_CMD_ARGS="--worker-connections 10"
    )
    with ExitStack() as stack:
        idle = [stack.enter_context(server.connect()) for _ in range(30)]
        assert [
            server.get(
                "/healthz",
            ).status_code
            for _ in range(3)
        ] == [200] * 3
        assert all(map(_is_closed, idle[:15]))
        slow = [stack.enter_context(_from("127.0.0.1", server, b"GET / HT")) for _ in range(15)]
        assert [server.get("/healthz").status_code for _ in range(3)] == [200] * 3
        assert all(map(_is_closed, slow[:5]))
