"""The power fails during uploads: what was acknowledged is on the disk.

Not tested: a disk that loses what it has acknowledged to the kernel.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from app.storage.base import Durability
from tests.hostile.conftest import Scaled
from tests.hostile.power import new_image, powered_disk
from tests.hostile.senders import PROTOCOLS, Crowd, Line
from tests.live_server import NO_FFMPEG, Server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.parametrize("durability", [Durability.CHUNK, Durability.FILE])
def test_a_power_cut_loses_nothing_that_was_promised(
    tmp_path: Path, scaled: Scaled, durability: Durability
) -> None:
    for number in range(scaled(short=1, long=20)):
        folder = tmp_path / str(number)
        folder.mkdir()
        crowd = upload_until_power_cut(folder, durability, seed=number)
        upload_after_power_cut(folder, durability, crowd)


@pytest.mark.long
def test_without_durability_a_power_cut_loses_bytes(tmp_path: Path) -> None:
    """Shows that the tests above can fail."""
    crowd = upload_until_power_cut(tmp_path, Durability.NONE, seed=0)
    assert any(sender.files for sender in crowd.senders)
    with pytest.raises(AssertionError):
        upload_after_power_cut(tmp_path, Durability.NONE, crowd)


def upload_until_power_cut(folder: Path, durability: Durability, *, seed: int) -> Crowd:
    """The interrupted senders; `after.img` is the disk at that moment."""
    image = new_image(folder / "before.img")
    with powered_disk(image, folder / "before") as disk:
        server = server_on(disk.folder, durability, folder)
        server.start()
        crowd = Crowd(Line([server]), seed, pause_seconds=0.01)
        try:
            with crowd.running(clients=len(PROTOCOLS)):
                wait_for_files(crowd)
                disk.image_after_power_cut(server, folder / "after.img")
                server.stop(signal.SIGKILL)
        finally:
            server.stop(signal.SIGKILL)
    image.unlink()
    assert {type(sender) for sender in crowd.senders} == {*PROTOCOLS}
    return crowd


def upload_after_power_cut(folder: Path, durability: Durability, crowd: Crowd) -> None:
    """Resume the unfinished files; no promised byte is missing."""
    with powered_disk(folder / "after.img", folder / "after") as disk:
        marker = disk.folder / "data" / "boot"
        if marker.exists():  # The machine was not really restarted.
            _, _, rest = marker.read_text().partition(" ")
            marker.write_text(f"another-boot {rest}")
        server = server_on(disk.folder, durability, folder)
        server.start()
        try:
            crowd.line.servers[0] = server
            if durability is not Durability.CHUNK:
                for sender in crowd.senders:
                    sender.forget_unfinished()
            crowd.finish()
            crowd.check()
        finally:
            server.stop(signal.SIGKILL)
    (folder / "after.img").unlink()


def wait_for_files(crowd: Crowd) -> None:
    """Wait until some files of each protocol are complete, unless that takes long.

    The kernel writes what it has held for 30 s; the disk is then newer than the
    last sync, and the test says less.
    """
    deadline = time.monotonic() + 20
    while any(crowd.line.counts[kind.__name__] == 0 for kind in PROTOCOLS):
        time.sleep(0.05)
        if time.monotonic() > deadline:
            return
    time.sleep(0.2)


def server_on(disk: Path, durability: Durability, folder: Path) -> Server:
    """A server with its folders on the disk, except its log; it makes its database itself."""
    (disk / "data").mkdir(mode=0o700, exist_ok=True)
    options = {
        "SLUICE_STAGING_DIR": str(disk / "staging"),
        "SLUICE_DATA_DIR": str(disk / "data"),
        "SLUICE_DURABILITY": durability.value,
        **NO_FFMPEG,
    }
    return Server(folder, options)
