"""What a peer is, and how one is run for a sample."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psutil

from bench.lib.harness import Lab
from bench.lib.meter import await_idle
from bench.lib.uploading import CHUNK_BYTES
from scripts.fleet.programs import free_port
from tests.live_server import ROOT

START_SECONDS = 20.0
STOP_SECONDS = 20.0
BUILT = ROOT / ".tools" / "peers"
BUILT_PEERS = ("tusd", "rustus")
BUILD_SECONDS = 1800
"""A peer that takes longer to build is left out."""


class PeerFailed(Exception):
    """A peer did not start."""


class Served(Protocol):
    """A running server, ours or a peer: where it listens, and the folder with its files."""

    port: int
    folder: Path

    def processes(self) -> list[psutil.Process]:
        """All its processes."""
        ...


class Peer(Protocol):
    """A server that a command starts; it is empty then, and keeps its files in `<folder>/files`."""

    @property
    def name(self) -> str:
        """As in the tables."""
        ...

    @property
    def version(self) -> str:
        """The program's name and version."""
        ...

    @property
    def needs(self) -> Sequence[Path | None]:
        """The programs and files without which it cannot run; None for one that was not found."""
        ...

    def command(self, folder: Path, port: int) -> list[str]:
        """The command line that starts it in the foreground."""
        ...


class Uploads(Peer, Protocol):
    """A peer that takes files in chunks."""

    def upload(
        self, port: int, source: Path, length: int, *, chunk_bytes: int = CHUNK_BYTES
    ) -> str:
        """Upload the start of a file; where it is, for servers that can be asked for it."""
        ...


class PeerServer:
    """One running peer; it serves `files`, in its folder."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.files = folder / "files"
        self.port = port
        self._log = folder / "log"
        self._process = process

    def await_start(self) -> None:
        """Return once it accepts connections and all its processes wait for them."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.05)
            else:
                await_idle(self.processes)
                return
        raise PeerFailed(self._log.read_text(errors="replace")[-2000:])

    def processes(self) -> list[psutil.Process]:
        """The program and all below it."""
        top = psutil.Process(self._process.pid)
        return [top, *top.children(recursive=True)]

    def stop(self) -> None:
        """Kill it; nothing of it is kept."""
        family = self.processes() if self._process.poll() is None else []
        for process in family:
            process.kill()
        self._process.wait(STOP_SECONDS)
        psutil.wait_procs(family[1:], STOP_SECONDS)


@contextmanager
def running(lab: Lab, peer: Peer) -> Iterator[PeerServer]:
    """A fresh peer with an empty folder."""
    with lab.scratch("peer") as folder:
        (folder / "files").mkdir()
        port = free_port()
        command = peer.command(folder, port)
        environment = {**os.environ, "NODE_ENV": "production"}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment)
        server = PeerServer(folder, port, process)
        try:
            server.await_start()
            lab.settle()
            yield server
        finally:
            server.stop()


def build(names: Iterable[str] = BUILT_PEERS) -> None:
    """Have `scripts/peers` build what is missing, one by one; a failure leaves that one out."""
    for name in names:
        try:
            subprocess.run([ROOT / "scripts" / "peers", name], check=True, timeout=BUILD_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"  {name} is left out: {error}", flush=True)


def built_version(name: str) -> str:
    """What `scripts/peers` noted beside a program it built."""
    return f"{name} {(BUILT / name / 'VERSION').read_text().strip()}"


def versions(peers: Iterable[Peer]) -> str:
    """Each program once."""
    return ", ".join(dict.fromkeys(peer.version for peer in peers))


def can_run(peer: Peer) -> bool:
    """Whether everything it needs is here."""
    return all(path is not None and path.exists() for path in peer.needs)
