"""CPU time and memory of a server's processes, and of nothing else.

CPU time is user + system of every process of the tree; the kernel's own threads (writeback) are not
counted. Memory is the sum of the processes' peaks of resident memory, which the kernel keeps:
sampling would take CPU time from the server. The page cache and socket buffers are not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from bench.lib.samples import Sample
from tests.live_server import command_of

IDLE_SHARE = 0.03
"""Share of a core below which a server counts as idle: a waiting worker wakes every second."""

LOOK_SECONDS = 0.2
IDLE_TIMEOUT_SECONDS = 30.0
"""A server that stays busy for longer is measured as it is."""

RESET_PEAK = "5"
"""Written to /proc/PID/clear_refs (proc(5)): resets the peak to what is resident now."""


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
            is_worker = "app.run.server.background_worker" in command_of(process)
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
        """Everything measured so far."""
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
    """Resident memory of all processes now."""
    return sum(_status(process.pid, "VmRSS") for process in processes)


def _status(pid: int, what: str) -> int:
    """A size from the status of a process, in bytes; 0 once it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_seconds_of(processes: Iterable[psutil.Process]) -> float:
    """User and system time of all threads, ended ones too; 0 for a process that is gone.

    From the clock that the kernel keeps for each process, in nanoseconds. /proc counts ticks of
    10 ms: a twentieth of what a fast server needs for 1 GB.
    """
    total = 0.0
    for process in processes:
        with suppress(OSError):
            total += time.clock_gettime(_clock_id(process.pid))
    return total


def tree_cpu_seconds_of(processes: Iterable[psutil.Process]) -> float:
    """The same, and what processes that they started and that have ended used, to 10 ms.

    Its growth is what a server's whole tree used, with those that came or went meanwhile.
    """
    ended = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            ended += times.children_user + times.children_system
    return cpu_seconds_of(processes) + ended


def await_quiet(family: Callable[[], list[psutil.Process]], seconds: float) -> None:
    """Return once a server has used next to no CPU time for so long: work may begin late."""
    deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS + seconds
    used = float("inf")
    while used > IDLE_SHARE * seconds and time.monotonic() < deadline:
        before = tree_cpu_seconds_of(family())
        time.sleep(seconds)
        used = tree_cpu_seconds_of(family()) - before


def await_idle(family: Callable[[], list[psutil.Process]]) -> None:
    """Return once a server has all its processes and none is still starting.

    A server answers as soon as one worker can: the start of the others would be measured, or they
    would not be there to be measured.
    """
    deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
    pids: set[int] = set()
    while time.monotonic() < deadline:
        processes = family()
        before, known, pids = cpu_seconds_of(processes), pids, {one.pid for one in processes}
        time.sleep(LOOK_SECONDS)
        used = cpu_seconds_of(processes) - before
        if (
            pids == known
            and used < IDLE_SHARE * LOOK_SECONDS
            and not any(map(_wants_cpu, processes))
        ):
            return


def _wants_cpu(process: psutil.Process) -> bool:
    """Whether it runs, or would if the machine were not busy with others."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_RUNNING)
    return False


def _clock_id(pid: int) -> int:
    """What clock_getcpuclockid(3) returns; Python has no such call."""
    return (~pid << 3) | 2
