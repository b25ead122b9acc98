"""The processes of a server belong together, and two servers do not share a data folder."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from scripts.fleet.programs import free_port
from tests.live_server import (
    NO_FFMPEG,
    ROOT,
    STOP_SECONDS,
    Server,
    command_of,
    parent_of,
    running_server,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


def head_of(key: str) -> bytes:
    """The head of a request that uploads 100,000 bytes."""
    return (
        f"POST /upload?dzuuid={key}&dzchunkindex=0&dztotalfilesize=100000&dzchunksize=100000"
        f"&dztotalchunkcount=1&dzchunkbyteoffset=0&filename={key}.mp4 HTTP/1.1\r\n"
        "Host: localhost\r\nContent-Length: 100000\r\n\r\n"
    ).encode()


HEAD = head_of("half")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the tests that leave it running."""
    options = {"SLUICE_GRACEFUL_SECONDS": "40", **NO_FFMPEG}
    with running_server(tmp_path_factory.mktemp("server"), **options) as running:
        yield running


def kill_top(server: Server) -> list[psutil.Process]:
    """Kill only the supervisor; the processes it had."""
    assert server.process is not None
    _, *below = server.processes()
    server.process.kill()
    server.process.wait()
    return below


def is_refused(server: Server) -> bool:
    """Whether no one listens on the port."""
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def run_server(folder: Path, **options: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected not to start."""
    server = Server(folder, options)
    return subprocess.run(
        [sys.executable, "-m", "app.run.server.supervisor"],
        cwd=ROOT,
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_its_supervisor_a_server_finishes_its_requests_and_ends(tmp_path: Path) -> None:
    server = Server(tmp_path, {"SLUICE_GRACEFUL_SECONDS": "40", **NO_FFMPEG})
    server.start()
    with server.connect() as connection:
        connection.sendall(HEAD + bytes(50_000))
        wait_until(lambda: server.get("/api/uploads").json()["uploads"], "the upload runs")
        below = kill_top(server)
        wait_until(lambda: is_refused(server), "the port is free while the request still runs")
        server.start()
        try:
            connection.sendall(bytes(50_000))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert not psutil.wait_procs(below, STOP_SECONDS)[1]
            assert len(server.get("/api/videos").json()["videos"]) == 1
        finally:
            server.stop()
            for process in below:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def test_ctrl_c_for_the_web_server_alone_stops_the_server_gracefully(tmp_path: Path) -> None:
    server = Server(tmp_path, {"SLUICE_GRACEFUL_SECONDS": "40", **NO_FFMPEG})
    server.start()
    top = server.process
    assert top is not None
    try:
        with server.connect() as connection:
            connection.sendall(HEAD + bytes(50_000))
            wait_until(lambda: server.get("/api/uploads").json()["uploads"], "the upload runs")
            (gunicorn,) = (
                one
                for one in server.processes()
                if "gunicorn" in command_of(one) and parent_of(one) == top.pid
            )
            gunicorn.send_signal(signal.SIGINT)
            wait_until(lambda: is_refused(server), "the port is free while the request still runs")
            connection.sendall(bytes(50_000))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert top.wait(STOP_SECONDS) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(top.pid, signal.SIGKILL)


def test_a_hangup_replaces_the_workers_and_cuts_no_upload(server: Server) -> None:
    before = set(server.web_workers())
    with server.connect() as connection:
        connection.sendall(head_of("hangup") + bytes(50_000))
        wait_until(lambda: server.get("/api/uploads").json()["uploads"], "the upload runs")
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(set(server.web_workers()) - before) == 2, "others have begun")
        assert server.get("/readyz").ok
        connection.sendall(bytes(50_000))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: not before & set(server.web_workers()), "the old ones have ended")
    names = [video["filename"] for video in server.get("/api/videos").json()["videos"]]
    assert names.count("hangup.mp4") == 1
    assert "SIGHUP: the web server replaces its workers" in server.log


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT"])
def test_a_signal_to_all_processes_of_a_service_stops_nothing(server: Server, name: str) -> None:
    wait_until(lambda: len(server.processes()) >= 5, "all processes run")
    said_before = len(server.log)
    top, *below = server.processes()
    with server.connect() as connection:
        connection.sendall(head_of(name) + bytes(50_000))
        wait_until(lambda: server.get("/api/uploads").json()["uploads"], "the upload runs")
        for process in (top, *below):
            with suppress(psutil.NoSuchProcess):  # A worker may just have been replaced.
                process.send_signal(getattr(signal, name))
        wait_until(lambda: name in server.log[said_before:], "it is logged")
        connection.sendall(bytes(50_000))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert server.get("/readyz").ok
    kept = [one for one in below if one not in server.processes()]
    assert all("gunicorn" in command_of(one) or not command_of(one) for one in kept)
    assert "ended with SIG" not in server.log[said_before:]


def test_an_endless_request_does_not_keep_an_orphan_alive(tmp_path: Path) -> None:
    constants = {"SLUICE_TEST_CONSTANTS": "body_idle_seconds=600"}
    options = {"SLUICE_GRACEFUL_SECONDS": "1", **constants, **NO_FFMPEG}
    server = Server(tmp_path, options)
    server.start()
    with server.connect() as connection:
        connection.sendall(HEAD + bytes(50_000))
        wait_until(lambda: server.get("/api/uploads").json()["uploads"], "the upload runs")
        below = kill_top(server)
        try:
            assert not psutil.wait_procs(below, STOP_SECONDS)[1]
        finally:
            for process in below:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def test_a_worker_that_ends_is_logged_and_restarted(server: Server) -> None:
    module = "app.run.server.background_worker"

    def workers() -> list[psutil.Process]:
        """Not what one of them starts, which is a copy of it at first."""
        named = [one for one in server.processes() if module in command_of(one)]
        return [one for one in named if server.process and parent_of(one) == server.process.pid]

    wait_until(workers, "it has started")
    (first,) = workers()
    first.send_signal(signal.SIGKILL)
    wait_until(lambda: "the background worker ended with SIGKILL" in server.log, "it is logged")
    wait_until(lambda: workers() and first not in workers(), "another has its place")


def test_a_second_server_on_one_data_folder_is_refused(server: Server, tmp_path: Path) -> None:
    assert server.process is not None
    data = server.environment["SLUICE_DATA_DIR"]
    second = run_server(tmp_path, SLUICE_DATA_DIR=data)
    assert second.returncode == 2
    (line,) = second.stderr.splitlines()
    assert data in line
    assert f"process {server.process.pid}" in line
    assert server.get("/readyz").ok


def test_a_port_in_use_is_reported_in_one_line_and_a_misspelt_setting_before_it(
    server: Server, tmp_path: Path
) -> None:
    second = run_server(tmp_path, SLUICE_PORT=str(server.port), SLUICE_DATADIR="x")
    assert second.returncode == 2
    warning, refusal = second.stderr.splitlines()
    assert "SLUICE_DATADIR is not a setting" in warning
    assert "did you mean SLUICE_DATA_DIR?" in warning
    assert refusal.startswith(f"Port {server.port} is in use.")


class Terminal:
    """A server whose output is a terminal."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, {"SLUICE_WORKERS": "1", **NO_FFMPEG}, free_port())
        self._reader, terminal = pty.openpty()
        os.set_blocking(self._reader, False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app.run.server.supervisor"],
            cwd=ROOT,
            env=self.server.environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._text = ""

    @property
    def text(self) -> str:
        """The output so far."""
        with suppress(BlockingIOError, OSError):
            while more := os.read(self._reader, 65536):
                self._text += more.decode()
        return self._text

    def close(self) -> None:
        """End the server, if it still runs."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._reader)


def test_a_person_at_a_terminal_is_greeted_and_told_goodbye(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        wait_until(lambda: "Press Ctrl-C to stop" in terminal.text, "it is ready")
        assert f"open http://127.0.0.1:{terminal.server.port}" in terminal.text
        assert str(terminal.server.staging) in terminal.text
        assert terminal.server.get("/healthz").ok
        wait_until(lambda: " 200 GET /healthz " in terminal.text, "the request is logged")
        os.killpg(terminal.process.pid, signal.SIGINT)  # What Ctrl-C does.
        assert terminal.process.wait(STOP_SECONDS) == 0
        wait_until(lambda: terminal.text.rstrip().endswith("Sluice has stopped."), "it says so")
        assert "Traceback" not in terminal.text
        assert '"level"' not in terminal.text
    finally:
        terminal.close()
