"""Processes that end with the one that started them, even where that is killed."""

from __future__ import annotations

import ctypes
import os
import signal

SUPERVISOR_VARIABLE = "SLUICE_SUPERVISOR_PID"
"""Where `app.serve` leaves its process id for the processes it starts."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_supervisor() -> None:
    """Have this process sent SIGTERM when its supervisor ends; nothing without one."""
    if SUPERVISOR_VARIABLE in os.environ:
        end_with_parent(int(os.environ[SUPERVISOR_VARIABLE]))


def end_with_parent(expected: int) -> None:
    """Have this process sent SIGTERM when its parent ends, or now if that has happened already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != expected:
        os.kill(os.getpid(), signal.SIGTERM)
