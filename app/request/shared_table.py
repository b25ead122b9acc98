"""Memory that all worker processes share."""

from __future__ import annotations

import mmap
import os
from pathlib import Path


def shared_table(file: Path, length: int) -> mmap.mmap:
    """So many bytes of a file, which are zeros at first; whatever is written there, others see."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600)
    try:
        os.ftruncate(descriptor, length)
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)
