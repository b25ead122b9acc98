"""Fills memory with page cache, as on a server that has run for a day.

In a virtual machine free memory may have no memory of the host behind it, and every first touch of
a page then faults into the host: writing a new file went at 300 to 600 MB/s, and at 3 GB/s where
the kernel recycled pages of its cache. A server in use has no free memory, a fresh benchmark has;
and the case that comes first would pay for the faults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

STEP_BYTES = 128 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024

BEYOND_BYTES = 1024 * 1024 * 1024
"""Read beyond what was free: the kernel frees pages of its cache while it is filled."""


class PageCache:
    """Fills free memory with pages of a sparse file: they are clean, and the first to be reused."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "sparse"
        self._position = 0
        self._buffer = memoryview(bytearray(BLOCK_BYTES))

    def fill(self, keep: Iterable[Path] = ()) -> None:
        """Fill all that is free, then see that the files `keep` are cached."""
        for _ in range(0, _free_bytes() + BEYOND_BYTES, STEP_BYTES):
            self._read_fresh()
        for path in keep:
            self._read(path, 0, path.stat().st_size)

    def _read_fresh(self) -> None:
        with self._path.open("ab") as file:
            file.truncate(self._position + STEP_BYTES)
        self._read(self._path, self._position, STEP_BYTES)
        self._position += STEP_BYTES

    def _read(self, path: Path, start: int, length: int) -> None:
        with path.open("rb", buffering=0) as file:
            for position in range(start, start + length, BLOCK_BYTES):
                os.preadv(file.fileno(), [self._buffer], position)


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0
