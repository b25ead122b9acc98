"""The CPU time of processes, from the clock that the kernel keeps for each.

In nanoseconds, where /proc counts ticks of 10 ms: a twentieth of what a fast server needs for 1 GB.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

IDLE_SHARE = 0.03
"""Of one core: less is idle. A worker that waits looks around once a second."""

LOOK_SECONDS = 0.2
IDLE_TIMEOUT_SECONDS = 30.0
"""Whoever is busy for longer is measured as it is."""


def cpu_seconds_of(processes: Iterable[psutil.Process]) -> float:
    """User and system time of all threads, ended ones too; 0 for a process that is gone."""
    total = 0.0
    for process in processes:
        with suppress(OSError):
            total += time.clock_gettime(_clock_id(process.pid))
    return total


def await_idle(family: Callable[[], list[psutil.Process]]) -> None:
    """Return once a server has all its processes and none is still at its start.

    A server answers as soon as one worker can: the start of the others would be measured, or they
    would not be there yet to be measured at all.
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
    """As clock_getcpuclockid(3) makes it, which Python does not have."""
    return (~pid << 3) | 2
