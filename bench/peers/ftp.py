"""An FTP server (pyftpdlib), and a client that drops what it gets."""

from __future__ import annotations

import ftplib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.lib.client import RequestFailed, drop


@dataclass(frozen=True, slots=True)
class FtpServer:
    """One process with an event loop; it sends with sendfile."""

    name: str = "FTP"

    @property
    def version(self) -> str:
        """The package's."""
        return f"pyftpdlib {version('pyftpdlib')}"

    @property
    def needs(self) -> Sequence[Path | None]:
        """Nothing but this interpreter."""
        return []

    def command(self, folder: Path, port: int) -> list[str]:
        """The module beside this one."""
        words = [sys.executable, "-W", "ignore", "-m", "bench.peers.ftp_server"]
        return [*words, str(port), str(folder / "files")]


def retrieve(port: int, path: str, length: int) -> None:
    """Fetch a whole file and drop it."""
    with ftplib.FTP() as client:
        client.connect("127.0.0.1", port)
        client.login()
        client.voidcmd("TYPE I")
        with client.transfercmd(f"RETR {path}") as connection:
            received = drop(connection, length)
        client.voidresp()
    if received != length:
        raise RequestFailed(f"{received} of {length} bytes of {path}")
