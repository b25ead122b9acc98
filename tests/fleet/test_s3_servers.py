"""The S3 servers that the tests and `make fleet` start."""

from __future__ import annotations

import secrets
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Semaphore

import pytest

from app.core.pieces import UNKNOWN_ID, Garbage
from app.storage.s3.connections import StoreUnreachable
from app.storage.s3.inventory import collect
from tests.browser.tools import find_program
from tests.hostile.conftest import Scaled
from tests.s3_servers import EACH_SERVER, MakeServer, S3Server, find_garage, find_versitygw, running
from tests.storage.stores import bucket_at, bucket_store

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


def test_multipart_uploads_that_a_killed_server_had_just_begun_are_removed(
    make: MakeServer, tmp_path: Path, scaled: Scaled
) -> None:
    """Garage lists some of them for ever after, and answers that there are none to abort."""
    names, begun = list[str](), Semaphore(0)

    def begin_many() -> None:
        with suppress(StoreUnreachable):  # The server is killed.
            while True:
                names.append(f"files/{secrets.token_hex(8)}")
                deadline = time.monotonic() + 30
                bucket.caller.once(
                    deadline, "create_multipart_upload", names[-1], ContentType="a/b"
                )
                begun.release()

    with running(make) as server, bucket_store(bucket_at(server.access, ""), tmp_path) as store:
        bucket, inventory = store.pieces.bucket, store.pieces.catalog.inventory
        for _ in range(scaled(short=1, long=80)):
            with ThreadPoolExecutor(8) as threads:
                senders = [threads.submit(begin_many) for _ in range(8)]
                have_begun = all(begun.acquire(timeout=60) for _ in range(8))
                server.program.stop(signal.SIGKILL)
            assert have_begun
            assert [sender.exception() for sender in senders] == [None] * 8
            server.program.start()
        assert [*bucket.list_multiparts()]
        collect(bucket, inventory, [Garbage(0, name, UNKNOWN_ID) for name in names])
        assert [*bucket.list_multiparts()] == []


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
