"""Memory that all worker processes share."""

from __future__ import annotations

import mmap
import os
from hashlib import blake2b
from pathlib import Path


def shared_table(file: Path, length: int) -> mmap.mmap:
    """Maps `length` bytes of a file, initially zeros, shared with other processes."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600)
    try:
        os.ftruncate(descriptor, length)
        return mmap.mmap(descriptor, length)
    finally:
        os.close(descriptor)


def replace_table(file: Path, table: bytes | bytearray) -> None:
    """Replace the content of a table that one process writes and others read; raises `OSError`.

    Not through the mapping: on a full disk, the first write to a new page kills the process.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode=0o600)
    try:
        os.pwrite(descriptor, table, 0)
    finally:
        os.close(descriptor)


def digest_of_name(name: str) -> int:
    """A 64-bit digest of a name, the same in all processes."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
