"""Processes that are restarted when they end, and that end with the process that started them."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""Before a worker that ended is started again. The pause doubles each time, up to the longest, and
is the first again for a worker that has lived as long as the longest."""

SUPERVISOR_VARIABLE = "SLUICE_SUPERVISOR_PID"
"""Where the supervisor leaves its process id for the processes it starts."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

log = logging.getLogger(__name__)


class KeptRunning:
    """A process that is started again whenever it ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._start()

    def look_after(self) -> None:
        """To be called often: notices that the process has ended, and starts it when it is time."""
        if self._restart_at is None:
            status = self._process.poll()
            if status is not None:
                self._plan_restart(status)
        elif time.monotonic() >= self._restart_at:
            self._start()

    def stop(self) -> None:
        """Tell the process to end."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait until it has."""
        self._process.wait()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command)
        self._started_at = time.monotonic()
        self._restart_at: float | None = None

    def _plan_restart(self, status: int) -> None:
        if self._has_settled():
            self._pause_seconds = FIRST_PAUSE_SECONDS
        log.error(
            "the background worker ended with %s; restarting in %g s",
            describe_status(status),
            self._pause_seconds,
        )
        self._restart_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def _has_settled(self) -> bool:
        return time.monotonic() - self._started_at >= LONGEST_PAUSE_SECONDS


def describe_status(status: int) -> str:
    """An exit status in words, or the signal that ended the process."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def end_with_supervisor() -> None:
    """Have this process sent SIGTERM when its supervisor ends; nothing without one."""
    if SUPERVISOR_VARIABLE in os.environ:
        end_with_parent(int(os.environ[SUPERVISOR_VARIABLE]))


def end_with_parent(expected: int) -> None:
    """Have this process sent SIGTERM when its parent ends, or now if that has happened already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != expected:
        os.kill(os.getpid(), signal.SIGTERM)
