"""A server whose clock is set while it runs, and between two starts."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from tests.dropzone_client import ChunkedFile, random_bytes, send_chunk, stored_sha256
from tests.hostile.conftest import Scaled
from tests.live_server import NO_FFMPEG, Server, running_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

A_FEW_SWEEPS = 1.5
NOTICED = "the clock was set"
"""What a server says that has noticed it."""

DAY = 24 * 3600


@dataclass
class MovedClock:
    """The time of day that all processes of a server see; nothing else is changed."""

    file: Path
    library: Path

    def set(self, days: int) -> None:
        """Set the clock this far from the real one, at once."""
        with self.file.open("r+b") as file:
            file.write(struct.pack("=q", days * DAY))

    @property
    def options(self) -> dict[str, str]:
        """The environment of a server that uses this clock."""
        return {"LD_PRELOAD": str(self.library), "MOVED_CLOCK_FILE": str(self.file)}


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> MovedClock:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("moving a server's clock takes a C compiler")
    folder = tmp_path_factory.mktemp("clock")
    library, source = folder / "moved_clock.so", Path(__file__).with_name("moved_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    (folder / "offset").write_bytes(bytes(8))
    return MovedClock(folder / "offset", library)


@pytest.fixture(scope="module")
def server(clock: MovedClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Shared by all tests; each sets its clock right again at the end."""
    folder = tmp_path_factory.mktemp("server")
    options = {**clock.options, **NO_FFMPEG, "SLUICE_TEST_CONSTANTS": "sweep_seconds=0.3"}
    with running_server(folder, **options) as running:
        yield running


def server_time(server: Server) -> datetime:
    return datetime.fromisoformat(server.get("/api/server").json()["time"])


def check_alive(server: Server, upload_id: str, offset: int) -> None:
    """Wait until the upload expires in the future; assert that it exists all the time."""

    def expires_in_the_future() -> bool:
        document = server.get(f"/api/uploads/{upload_id}").json()
        assert (document.get("state"), document.get("offset")) == ("receiving", offset), document
        return datetime.fromisoformat(document["expires"]) > server_time(server)

    wait_until(expires_in_the_future, f"{upload_id} expires in the future")


def test_no_upload_is_lost_when_the_clock_is_set(
    server: Server, clock: MovedClock, scaled: Scaled
) -> None:
    jumps = [8, 0, -8, 8, 20_000, 0] * scaled(short=1, long=10)
    file = ChunkedFile(random_bytes(1000 * (len(jumps) + 1)), 1000)
    upload_id = send_chunk(server, file, 0).json()["id"]
    real = server_time(server)
    for number, jump in enumerate(jumps, start=1):
        noticed = server.log.count(NOTICED)
        clock.set(jump)
        wait_until(lambda: server.log.count(NOTICED) > noticed, "it is noticed")  # noqa: B023 - at once
        time.sleep(A_FEW_SWEEPS)
        check_alive(server, upload_id, 1000 * number)
        assert send_chunk(server, file, number).status_code == 200
    assert abs((server_time(server) - real).total_seconds()) < 3600, "the clock is right again"
    assert server.get(f"/api/videos/{upload_id}").status_code == 200
    assert stored_sha256(server, upload_id) == file.sha256


@pytest.mark.parametrize("wrong", [-20_000, 8])
def test_no_upload_is_lost_when_a_wrong_clock_at_start_is_corrected(
    server: Server, clock: MovedClock, wrong: int
) -> None:
    file = ChunkedFile(random_bytes(3000), 1000)
    upload_id = send_chunk(server, file, 0).json()["id"]
    wait_until((server.library.parent / "clock").exists, "the time is noted")
    server.stop()
    clock.set(wrong)
    server.start()
    time.sleep(A_FEW_SWEEPS)
    check_alive(server, upload_id, 1000)
    assert send_chunk(server, file, 1).status_code == 200
    clock.set(0)
    time.sleep(A_FEW_SWEEPS)
    check_alive(server, upload_id, 2000)
    assert send_chunk(server, file, 2).json()["complete"] is True


def test_with_the_clock_set_back_uploads_still_expire(server: Server, clock: MovedClock) -> None:
    server.options["SLUICE_EXPIRY_SECONDS"] = "3"
    server.restart()
    upload_id = send_chunk(server, ChunkedFile(random_bytes(3000), 1000), 0).json()["id"]
    clock.set(-8)
    wait_until(
        lambda: server.get(f"/api/uploads/{upload_id}").status_code == 410, "the upload expires"
    )
