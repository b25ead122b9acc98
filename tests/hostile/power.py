"""A disk whose power can be cut: what the kernel had only in memory is gone.

An ext4 file system in a file, on a loop device that passes everything on at once (direct I/O). A
copy of the file is the disk as the machine would find it when it starts again.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.hostile.disks import run
from tests.live_server import Server
from tests.waiting import wait_until

MEGABYTES = 256
COMMIT_SECONDS = 600
"""The file system writes nothing by itself before this; the kernel's limit for data is 30 s."""
QUIET_SECONDS = 0.2
WRITTEN_SECTORS = 6
"""The column of /sys/block/*/stat."""


@dataclass
class PoweredDisk:
    """An image, and the folder at which it is mounted from `device`."""

    image: Path
    folder: Path
    device: str

    def image_after_power_cut(self, server: Server, target: Path) -> None:
        """Copy the disk as it is now, with the server paused, which then ends."""
        paused = server.processes()
        for process in paused:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        written = -1
        while written != self._written_sectors():  # A sync may still be running.
            written = self._written_sectors()
            time.sleep(QUIET_SECONDS)
            subprocess.run(["cp", "--sparse=always", self.image, target], check=True)
        for process in paused:  # One that is paused would not end with its parent.
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _written_sectors(self) -> int:
        text = Path("/sys/block", Path(self.device).name, "stat").read_text()
        return int(text.split()[WRITTEN_SECTORS])


def new_image(path: Path) -> Path:
    """An empty file system; without loop devices the test is skipped."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    with path.open("wb") as file:
        file.truncate(MEGABYTES << 20)
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(path))
    return path


@contextmanager
def powered_disk(image: Path, folder: Path) -> Iterator[PoweredDisk]:
    """The disk of an image, mounted at a folder; one that lost its power recovers its journal."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        device = _attach(image)
        stack.callback(subprocess.run, ["losetup", "-d", device], check=True)
        run("mount", "-o", f"commit={COMMIT_SECONDS}", device, str(folder))
        stack.callback(_unmount, folder)
        yield PoweredDisk(image, folder, device)


def _unmount(folder: Path) -> None:
    """A process that was killed a moment ago, or that a killed one had begun, may still hold it."""

    def is_unmounted() -> bool:
        return subprocess.run(["umount", str(folder)], check=False).returncode == 0

    wait_until(is_unmounted, f"nothing uses {folder}")


def _attach(image: Path) -> str:
    run("losetup", "--find")
    words = ["losetup", "--direct-io=on", "--find", "--show", str(image)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no loop device: {done.stderr.strip()}")
    return done.stdout.strip()
