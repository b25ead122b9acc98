"""CPU time and memory of a server's processes, and of nothing else.

CPU time is user + system of every process of the tree. What the kernel does elsewhere for it
(writeback threads) is in nobody's account. Memory is the sum of the processes' peaks of resident
memory, as the kernel keeps them: to sample it would take time from whom it measures, and from a
tree of processes more than from one. The page cache and socket buffers are not in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from bench.cpu_clock import cpu_seconds_of
from bench.samples import Sample

RESET_PEAK = "5"
"""What is written to /proc/PID/clear_refs (proc(5)): the peak is what is resident now."""


class Meter:
    """Measures the processes from `with` on.

    Memory is above `idle_bytes`, what they had when they were fresh, or above what they have now.
    """

    def __init__(
        self, processes: Iterable[psutil.Process], *, idle_bytes: int | None = None
    ) -> None:
        self._foreground: list[psutil.Process] = []
        self._background: list[psutil.Process] = []
        for process in processes:
            is_worker = "app.worker" in process.cmdline()
            (self._background if is_worker else self._foreground).append(process)
        self._idle_bytes = idle_bytes
        self._peak_at_end: int | None = None
        self._cpu_before = (0.0, 0.0)
        self._started = 0.0

    def __enter__(self) -> Meter:
        for pid in self._pids:
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
        if self._idle_bytes is None:
            self._idle_bytes = resident_bytes([*self._foreground, *self._background])
        self._cpu_before = (cpu_seconds_of(self._foreground), cpu_seconds_of(self._background))
        self._started = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._peak_at_end = self.peak_bytes  # The processes may be gone when it is asked for.

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
        """Most memory of each process, together, above idle; up to the end."""
        if self._peak_at_end is not None:
            return self._peak_at_end
        return sum(_status(pid, "VmHWM") for pid in self._pids) - (self._idle_bytes or 0)

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

    @property
    def _pids(self) -> list[int]:
        return [process.pid for process in (*self._foreground, *self._background)]


def resident_bytes(processes: Iterable[psutil.Process]) -> int:
    """The memory that processes have now, together."""
    return sum(_status(process.pid, "VmRSS") for process in processes)


def _status(pid: int, what: str) -> int:
    """A size in the status of a process, in bytes; 0 once it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
    return 0
