"""Other servers of the protocols, as `scripts/peers` builds them."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.fleet.programs import free_port
from tests.live_server import ROOT

FOLDER = ROOT / ".tools" / "peers"
START_SECONDS = 30

LARGEST_BYTES = 1 << 30
"""Set so that the cases about limits run."""


@dataclass(frozen=True)
class Addresses:
    """URLs at which a running server accepts uploads; None for a protocol it does not support."""

    tus: str | None
    draft: str | None


Start = Callable[[Path], AbstractContextManager[Addresses]]


@dataclass(frozen=True)
class Peer:
    """A server to compare with; `start` runs it on a folder for the length of a context."""

    name: str
    start: Start

    @property
    def version(self) -> str:
        """The built version; raises `FileNotFoundError` if there is none."""
        return (FOLDER / self.name / "VERSION").read_text().strip()


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """A server that listens on `port`, for the length of a context."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_listening(process, port)
        yield
    finally:
        process.terminate()
        process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Return once a server accepts connections there; raises `RuntimeError` if none does."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{process.args!r} did not start")


@contextmanager
def tusd(folder: Path) -> Iterator[Addresses]:
    """tusd, whose draft versions must be switched on; its locks are polled more often than usual,
    or every takeover would take seconds."""
    port = free_port()
    command = [str(FOLDER / "tusd" / "tusd"), "-host", "127.0.0.1", "-port", str(port)]
    command += ["-upload-dir", str(folder), "-max-size", str(LARGEST_BYTES)]
    command += ["-enable-experimental-protocol"]
    command += ["-filelock-holder-poll-interval", "100ms"]
    command += ["-filelock-acquirer-poll-interval", "50ms"]
    url = f"http://127.0.0.1:{port}/files/"
    with running(command, port):
        yield Addresses(tus=url, draft=url)


PEERS = (Peer("tusd", tusd),)
