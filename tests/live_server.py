"""A real Sluice for tests, on a free port, with its own folders."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import requests

from app.storage.local.folder import make_private_folder
from app.video.make.encoder import calibrate
from app.video.make.ffmpeg import Ffmpeg
from app.video.serve.ladder import FILE
from app.video.serve.scratch import ScratchSpace
from scripts.fleet.programs import free_port
from tests.records.making import new_sqlite

ROOT = Path(__file__).parent.parent
ANY_NAME = {"SLUICE_HOST": "0.0.0.0", "SLUICE_ACCESS": "open"}
"""Options of a server that answers to any name: without accounts, one on this machine alone answers
to the machine's own."""

FFMPEG = {"PATH": os.environ["PATH"]}
NO_FFMPEG = {"PATH": "/nonexistent"}
"""Options of a server that does not find ffprobe: for each file that is no film it would run for
0.1 s of CPU time, and tests upload thousands of random bytes."""

SHARED_FOLDER = "TESTS_SHARED_FOLDER"
"""Names a folder that all processes of one run share, while pytest runs."""

START_SECONDS = 120
STOP_SECONDS = 120


def receive_exactly(connection: socket.socket, length: int) -> bytes:
    """Exactly `length` bytes, and none of a pipelined answer that may follow."""
    received = bytearray()
    while len(received) < length:
        piece = connection.recv(min(length - len(received), 65_536))
        if not piece:
            raise ConnectionError(f"closed after {len(received)} of {length} bytes")
        received += piece
    return bytes(received)


def shared_folder() -> AbstractContextManager[str]:
    """A folder of all processes of this run; outside pytest one of its own."""
    shared = os.environ.get(SHARED_FOLDER)
    return nullcontext(shared) if shared else TemporaryDirectory()


@cache
def measurement() -> bytes:
    """How fast this machine encodes; empty without ffmpeg."""
    with shared_folder() as name, (Path(name) / ".measurement.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        calibrate(Ffmpeg.find(), ScratchSpace(Path(name)))  # Unless another process has done so.
        file = Path(name) / FILE
        return file.read_bytes() if file.exists() else b""


def leave_measurement(data: Path) -> None:
    """Spare a server with this data folder the measuring, which takes seconds of CPU time."""
    if not (data / "media").exists() and (measured := measurement()):
        make_private_folder(data)
        make_private_folder(data / "media")
        (data / "media" / FILE).write_bytes(measured)


def leave_database(file: Path) -> None:
    """Spare a new server the migrations, an eighth of the CPU time that its start takes."""
    if not file.parent.exists():
        make_private_folder(file.parent)
        new_sqlite(file).close()


def command_of(process: psutil.Process) -> str:
    """Its command line; empty once it has ended, as the background worker's programs soon do."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # Also of those that have ended and were not waited for.
        return ""


def parent_of(process: psutil.Process) -> int:
    """The id of its parent; 0 once it has ended."""
    try:
        parent: int = process.ppid()
    except psutil.NoSuchProcess:
        return 0
    return parent


@dataclass
class Server:
    """One running instance; `restart` keeps its folders and port.

    `module` is what Python runs, with arguments. With a `certificate`, requests are made
    over TLS.
    """

    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    module: str = "app.run.server.supervisor"
    certificate: Path | None = None

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    @property
    def staging(self) -> Path:
        """Where chunks are written."""
        return Path(self.environment["SLUICE_STAGING_DIR"])

    @property
    def library(self) -> Path:
        """Where published files are."""
        return Path(self.environment["SLUICE_DATA_DIR"]) / "library"

    @property
    def database(self) -> Path:
        """The records."""
        return self.library.parent / "sluice.db"

    @property
    def log(self) -> str:
        """Everything the server has written so far."""
        return (self.folder / "log").read_text()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the server."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        return {
            **inherited,
            "SLUICE_PORT": str(self.port),
            "SLUICE_STAGING_DIR": str(self.folder / "staging"),
            "SLUICE_DATA_DIR": str(self.folder / "data"),
            "SLUICE_WORKERS": "2",
            "SLUICE_THREADS": "16",
            **self.options,
        }

    def start(self) -> None:
        """Start, and return once it answers."""
        with suppress(OSError):  # Some folders cannot be written.
            if "SLUICE_DATABASE_URL" not in self.options:
                leave_database(self.database)
            leave_measurement(self.library.parent)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.module.split()],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                requests.get(f"{self.url}/healthz", timeout=5, verify=self._verify)
            except (requests.ConnectionError, requests.Timeout):
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"the server did not start:\n{self.log}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal the supervisor (SIGKILL: every process) and wait until all are gone."""
        if self.process is None:
            return
        family = self.processes()
        top, self.process = self.process, None
        if number == signal.SIGKILL:
            os.killpg(top.pid, number)
        else:
            top.send_signal(number)
        top.wait(STOP_SECONDS)
        _, alive = psutil.wait_procs(family, STOP_SECONDS)
        assert not alive, f"still running after the server stopped: {alive}"

    def restart(self, number: int = signal.SIGTERM) -> None:
        """Stop and start again."""
        self.stop(number)
        self.start()

    def processes(self) -> list[psutil.Process]:
        """The supervisor and its descendants."""
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def web_workers(self) -> list[psutil.Process]:
        """gunicorn's worker processes."""
        every = self.processes()
        gunicorn = {one: parent_of(one) for one in every if "gunicorn" in command_of(one)}
        pids = {process.pid for process in gunicorn}
        return [process for process, parent in gunicorn.items() if parent in pids]

    def get(self, path: str, **options: Any) -> requests.Response:
        """GET a path of this server."""
        return requests.get(self.url + path, timeout=60, verify=self._verify, **options)

    def post(self, path: str, **options: Any) -> requests.Response:
        """POST to a path of this server."""
        return requests.post(self.url + path, timeout=60, verify=self._verify, **options)

    def patch(self, path: str, **options: Any) -> requests.Response:
        """PATCH a path of this server."""
        return requests.patch(self.url + path, timeout=60, verify=self._verify, **options)

    def delete(self, path: str, **options: Any) -> requests.Response:
        """DELETE a path of this server."""
        return requests.delete(self.url + path, timeout=60, verify=self._verify, **options)

    def empty(self) -> None:
        """Delete all uploads and videos."""
        for kind in ("uploads", "videos"):
            while found := self.get(f"/api/{kind}").json()[kind]:
                for item in found:
                    self.delete(f"/api/{kind}/{item['id']}")

    def connect(self) -> socket.socket:
        """A raw connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.certificate is None:
            return connection
        trust = ssl.create_default_context(cafile=self.certificate)
        return trust.wrap_socket(connection, server_hostname="127.0.0.1")

    @property
    def _verify(self) -> str | bool:
        return str(self.certificate) if self.certificate else True


@contextmanager
def running_server(folder: Path, **options: str) -> Iterator[Server]:
    """A server with settings such as `SLUICE_WORKERS="4"`, for the length of the context."""
    server = Server(folder, options)
    server.start()
    try:
        yield server
    finally:
        server.stop(signal.SIGTERM)
