"""System calls without a Python function."""

from __future__ import annotations

import ctypes
import os


def syscall(number: int, *arguments: object) -> int:
    """Call and return the result; integers are C ints, bytes are pointers. Raises `OSError`."""
    return _result(_libc().syscall(number, *arguments))


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process. Raises `OSError`."""
    _result(_libc().prctl(option, value, 0, 0, 0))


def _result(value: int) -> int:
    if value < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return value


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
