"""Real S3 servers, in temporary folders.

Most tests take the fixture `versitygw` and a `new_prefix` in its bucket; those that ask more of a
store run on `EACH_SERVER`. One that kills its server starts its own: `running(find_versitygw())`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

import pytest

from scripts.fleet.s3_servers import TOOLS, Access, S3Server, garage, versitygw
from tests.browser.tools import fail_or_skip
from tests.long_tests import long

__all__ = [
    "EACH_SERVER",
    "Access",
    "MakeServer",
    "S3Server",
    "find_garage",
    "find_versitygw",
    "new_prefix",
    "running",
]

MakeServer = Callable[[Path], S3Server]


def _is_here(name: str) -> bool:
    return os.access(TOOLS / name, os.X_OK)


EACH_SERVER = ["versitygw", *long(["garage"] if _is_here("garage") else [])]
"""The names of their fixtures. Garage is built where somebody asks for it, by `make setup-s3`."""


def find_versitygw() -> MakeServer:
    """versitygw. Without it the test is skipped, as set-up has said that it could not build it; on
    a build server it fails."""
    if not _is_here("versitygw"):
        reason = "versitygw is not there: `make setup-s3` builds it"
        fail_or_skip(reason, could_be_here=os.environ.get("CI") == "true")
    return versitygw


def find_garage() -> MakeServer:
    """Garage; without it the test is skipped."""
    if not _is_here("garage"):
        pytest.skip("Garage is not there: `make setup-s3` builds it in a quarter of an hour")
    return garage


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
