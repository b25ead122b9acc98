"""The S3 servers that the tests and `make fleet` start."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.browser.tools import find_program
from tests.s3_servers import EACH_SERVER, MakeServer, S3Server, find_garage, find_versitygw, running

pytestmark = pytest.mark.e2e


@pytest.fixture(params=EACH_SERVER)
def make(request: pytest.FixtureRequest) -> MakeServer:
    return {"garage": find_garage, "versitygw": find_versitygw}[request.param]()


def test_an_object_outlives_a_killed_server(make: MakeServer, tmp_path: Path) -> None:
    sent, received = tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(b"0123456789" * 10_000)
    with running(make) as server:
        curl(server, "--upload-file", sent)
        server.program.stop(signal.SIGKILL)
        server.program.start()
        curl(server, "--output", received)
    assert received.read_bytes() == sent.read_bytes()


def curl(server: S3Server, *options: str | Path) -> bytes:
    """What the server answers about one object."""
    access = server.access
    done = subprocess.run(
        [
            *(find_program("curl"), "--silent", "--show-error", "--fail", "--user"),
            *(f"{access.key}:{access.secret}", "--aws-sigv4", f"aws:amz:{access.region}:s3"),
            *("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", *options),
            f"{access.endpoint}/{access.bucket}/object",
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return done.stdout
