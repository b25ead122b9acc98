"""The server ends when it is told to, whenever and however often."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest
import requests

from app.core.upload import UploadId
from app.db.engine import Database
from app.records.uploads import UploadRecords
from app.run.server.gunicorn_worker import CHECKPOINT_SECONDS, LINGER_SECONDS
from scripts.fleet.programs import free_port
from tests.live_server import NO_FFMPEG, ROOT, STOP_SECONDS, Server
from tests.long_tests import long
from tests.waiting import wait_until, wait_until_read

pytestmark = pytest.mark.e2e

SIGNALS = 300


def test_a_background_worker_ends_however_many_signals_it_gets(tmp_path: Path) -> None:
    """Catches a signal handler that waits for a lock which the interrupted code holds."""
    server = Server(tmp_path, NO_FFMPEG)
    command = [sys.executable, "-m", "app.run.server.background_worker"]
    with subprocess.Popen(command, cwd=ROOT, env=server.environment) as worker:
        threads = psutil.Process(worker.pid).num_threads
        wait_until(lambda: worker.poll() is None and threads() >= 3, "it works")
        for number in (signal.SIGTERM, signal.SIGINT) * (SIGNALS // 2):
            if worker.poll() is not None:
                break
            os.kill(worker.pid, number)
            time.sleep(0.0005)
        try:
            assert worker.wait(STOP_SECONDS) == 0
        finally:
            worker.kill()


@pytest.mark.parametrize("seconds", [0.3, 0.9, *long([0.6, 1.2, 1.5])])
def test_a_server_stopped_while_it_starts_leaves_no_process(tmp_path: Path, seconds: float) -> None:
    environment = Server(tmp_path, NO_FFMPEG, free_port()).environment
    command = [sys.executable, "-m", "app.run.server.supervisor"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    ) as top:
        time.sleep(seconds)
        family = psutil.Process(top.pid).children(recursive=True)
        top.terminate()
        try:
            assert top.wait(STOP_SECONDS) in {0, -signal.SIGTERM}
            assert not psutil.wait_procs(family, STOP_SECONDS)[1]
        finally:
            top.kill()
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def test_a_clean_stop_leaves_the_database_in_one_file(tmp_path: Path) -> None:
    server = Server(tmp_path, NO_FFMPEG)
    server.database.parent.mkdir(mode=0o700)  # Where there is a folder, the database is its own.
    server.start()
    server.post("/upload", files={"file": ("film.mp4", b"film")}).raise_for_status()
    assert Path(f"{server.database}-wal").stat().st_size > 0

    server.stop()

    assert [path.name for path in server.database.parent.glob("sluice.db*")] == ["sluice.db"]
    with closing(sqlite3.connect(server.database)) as database:
        assert database.execute("SELECT filename FROM uploads").fetchall() == [("film.mp4",)]


def test_a_client_that_keeps_sending_does_not_delay_the_stop(
    start_server: Callable[..., Server],
) -> None:
    """Otherwise it is read from for LINGER_SECONDS after its answer."""
    server, answered, is_cut_off = start_server(), Event(), Event()

    def send_on() -> None:
        with server.connect() as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            client.recv(65536)
            lingers_until = time.monotonic() + LINGER_SECONDS
            answered.set()
            try:
                while time.monotonic() < lingers_until:
                    client.sendall(b"x")
                    time.sleep(0.1)
            except OSError:
                is_cut_off.set()

    client = Thread(target=send_on)
    client.start()
    assert answered.wait(60)
    server.stop()
    client.join()
    assert is_cut_off.is_set()


def test_a_server_that_drains_says_so_and_serves_on(start_server: Callable[..., Server]) -> None:
    server = start_server(SLUICE_DRAIN_SECONDS="600")
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as kept:
        assert _connection_after(kept) == "keep-alive"
        assert server.process is not None
        server.process.terminate()

        wait_until(lambda: server.get("/readyz").status_code == 503, "balancers are told")
        assert server.get("/readyz").json()["status"] == "leaving"
        film = server.post("/upload", files={"file": ("film.mp4", b"film")}).json()
        assert server.get(film["media"]).content == b"film"
        assert _connection_after(kept) == "close"
    server.stop()  # A second signal does not wait.
    with pytest.raises(requests.ConnectionError):
        server.get("/healthz")


def _connection_after(connection: HTTPConnection) -> str | None:
    """What an answer says of its connection."""
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    assert answer.read() == b'{"status":"ok"}\n'
    return answer.getheader("Connection")


def test_what_arrived_of_a_body_is_kept_when_the_time_to_finish_is_over(
    start_server: Callable[..., Server],
) -> None:
    """The request ends in order: a killed one has no line in the access log."""
    graceful_seconds = 2 * CHECKPOINT_SECONDS  # With less, there is less time for what arrived.
    server = start_server(
        SLUICE_GRACEFUL_SECONDS=str(graceful_seconds),
        SLUICE_TEST_CONSTANTS="min_bytes_per_second=0",
    )
    upload_id = server.post("/api/uploads", json={"name": "a.mp4", "size": 1000}).json()["id"]
    head = f"PATCH /tus/{upload_id} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\n"
    of_body = "Upload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n"
    with server.connect() as client:
        client.sendall(f"{head}{of_body}Content-Length: 1000\r\n\r\n".encode() + bytes(600))
        wait_until_read(client)
        server.stop()
        assert client.recv(1) == b""
    with closing(Database(f"sqlite:///{server.database}", synced=True)) as database:
        assert UploadRecords(database).get(UploadId(upload_id)).offset == 600
    lines = [json.loads(line) for line in server.log.splitlines() if "/tus/" in line]
    assert [line["received"] for line in lines if "received" in line] == [600]
