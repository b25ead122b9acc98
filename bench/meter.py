"""CPU time and memory of a server's processes, and of nothing else.

CPU time is user + system of every process of the tree. What the kernel does elsewhere for it
(writeback threads) is in nobody's account. Memory is the sum of PSS: private pages whole, pages
shared among the processes counted once. The page cache and socket buffers are not in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from bench.cpu_clock import cpu_seconds_of
from bench.harness import Sample

SAMPLE_SECONDS = 0.05


class Meter:
    """Measures the processes from `with` on; memory is above what they had before."""

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._foreground: list[psutil.Process] = []
        self._background: list[psutil.Process] = []
        for process in processes:
            is_worker = "app.worker" in process.cmdline()
            (self._background if is_worker else self._foreground).append(process)
        self._idle_bytes = self._memory()
        self._peak_bytes = self._idle_bytes
        self._has_ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._cpu_before = (0.0, 0.0)
        self._started = 0.0

    def __enter__(self) -> Meter:
        self._cpu_before = (cpu_seconds_of(self._foreground), cpu_seconds_of(self._background))
        self._sampler.start()
        self._started = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_ended.set()
        self._sampler.join()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """What the processes that answer requests have used since the start."""
        return cpu_seconds_of(self._foreground) - self._cpu_before[0]

    @property
    def background_cpu_seconds(self) -> float:
        """What the background worker (digests of finished files) has used since the start."""
        return cpu_seconds_of(self._background) - self._cpu_before[1]

    @property
    def peak_bytes(self) -> int:
        """Most memory of all processes together, above idle."""
        return self._peak_bytes - self._idle_bytes

    def look(self) -> None:
        """Take a look at the memory now, besides those every `SAMPLE_SECONDS`."""
        self._peak_bytes = max(self._peak_bytes, self._memory())

    def sample(self, case: str, round_number: int, byte_count: int) -> Sample:
        """All of it as of now."""
        return Sample(
            case=case,
            round=round_number,
            byte_count=byte_count,
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            background_cpu_seconds=self.background_cpu_seconds,
            peak_bytes=self.peak_bytes,
        )

    def _sample(self) -> None:
        while not self._has_ended.wait(SAMPLE_SECONDS):
            self.look()

    def _memory(self) -> int:
        return sum(_pss(process.pid) for process in [*self._foreground, *self._background])


def _pss(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
