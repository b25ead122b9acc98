"""Real S3 servers, in temporary folders.

Most tests take the fixtures `garage`, `versitygw` or `s3_server`, and a `new_prefix` in its bucket.
One that kills its server starts one of its own with `running(find_garage())`.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from scripts.fleet.s3_servers import TOOLS, Access, S3Server, garage, versitygw
from tests.browser.tools import fail_or_skip

__all__ = [
    "Access",
    "MakeServer",
    "S3Server",
    "find_any",
    "find_garage",
    "find_versitygw",
    "new_prefix",
    "running",
]

MakeServer = Callable[[Path], S3Server]
WHERE_FROM = "`make setup-s3` builds it"


def find_garage() -> MakeServer:
    """Garage; without it the test is skipped, but fails on a build server."""
    _require("garage")
    return garage


def find_versitygw() -> MakeServer:
    """versitygw, likewise."""
    _require("versitygw")
    return versitygw


def find_any() -> str:
    """The name of one that is there, preferably Garage; set-up builds versitygw if Go is there."""
    if not _is_here("garage") and not _is_here("versitygw"):
        reason = "there is no S3 server: `make setup-s3` builds two"
        fail_or_skip(reason, could_be_here=_is_build_server() or shutil.which("go") is not None)
    return "garage" if _is_here("garage") else "versitygw"


@contextmanager
def running(make: MakeServer) -> Iterator[S3Server]:
    """A server that answers, whose files go with it."""
    with TemporaryDirectory(prefix="sluice-s3-") as folder:
        server = make(Path(folder))
        server.program.start()
        try:
            yield server
        finally:
            server.program.stop(signal.SIGKILL)  # Its files go too, and Garage takes a second.


def new_prefix() -> str:
    """A place in the shared bucket that no other test uses."""
    return f"test-{token_hex(8)}"


def _is_here(name: str) -> bool:
    return os.access(TOOLS / name, os.X_OK)


def _is_build_server() -> bool:
    return os.environ.get("CI") == "true"


def _require(name: str) -> None:
    if not _is_here(name):
        fail_or_skip(f"{name} is not there: {WHERE_FROM}", could_be_here=_is_build_server())
