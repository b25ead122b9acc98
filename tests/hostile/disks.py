"""Small disks for a server's folders, which can be filled, emptied and broken."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

BLOCK = bytes(64 * 1024)


@dataclass(frozen=True)
class Disk:
    """A file system of its own, mounted at `folder`."""

    folder: Path

    def fill(self) -> None:
        """Use every free byte."""
        with (self.folder / "filler").open("ab", buffering=0) as file:
            for size in (len(BLOCK), 1):
                with suppress(OSError):
                    while file.write(BLOCK[:size]):
                        pass

    def empty(self) -> None:
        """Free the space again."""
        (self.folder / "filler").unlink()


def run(*command: str) -> None:
    """Run a command that needs root; without root the test is skipped."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine cannot {command[0]}: {done.stderr.strip()}")


@contextmanager
def small_disks(folder: Path, *names: str, megabytes: int) -> Iterator[dict[str, Disk]]:
    """Disks in memory, mounted at these paths below `folder`, in order."""
    with ExitStack() as stack:
        disks = {}
        for name in names:
            path = folder / name
            path.mkdir(parents=True, mode=0o700)
            run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(path))
            stack.callback(subprocess.run, ["umount", "-l", str(path)], check=True)
            disks[name] = Disk(path)
        yield disks


@dataclass
class BreakableDisk:
    """An ext4 file system in a file; it turns read-only at the first error, as real ones do."""

    folder: Path
    image: Path

    def mount(self) -> None:
        """Mount it at `folder`."""
        run("mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.folder))

    def turn_read_only(self) -> None:
        """What the kernel does with a failing disk, whether files are open or not."""
        words = ["findmnt", "-no", "SOURCE", str(self.folder)]
        device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        trigger = Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error")
        try:
            trigger.write_text("test")
        except OSError as error:
            pytest.skip(f"this machine cannot break a file system: {error}")
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            (self.folder / "probe").touch()

    def repair(self) -> None:
        """Unmount, check, and mount again: what an operator does, or the next boot."""
        subprocess.run(["umount", str(self.folder)], check=True)
        subprocess.run(["e2fsck", "-fy", str(self.image)], check=False, capture_output=True)
        self.mount()


@contextmanager
def breakable_disk(folder: Path, image: Path, *, megabytes: int) -> Iterator[BreakableDisk]:
    """A disk of that size."""
    folder.mkdir(parents=True)
    image.touch()
    os.truncate(image, megabytes * 1024 * 1024)
    run("mkfs.ext4", "-q", str(image))
    disk = BreakableDisk(folder, image)
    disk.mount()
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
