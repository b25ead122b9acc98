"""Measures a folder's disk: how fast blocks of each size are written and read. No Flask.

Like the server, it writes to a preallocated file. The file never has a name: however the program
ends, the kernel frees it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
BLOCK_SIZES = (
    KIB,
    4 * KIB,
    16 * KIB,
    64 * KIB,
    256 * KIB,
    MIB,
    4 * MIB,
    10 * MIB,
    20 * MIB,
)


class Mode(StrEnum):
    """What is done with the blocks; the value is the column's title."""

    WRITE_BUFFERED = "write, buffered"
    """Through the page cache; the time includes the fsync that ends it."""
    WRITE_DIRECT = "write, direct"
    """Past the page cache (O_DIRECT)."""
    READ_BUFFERED = "read, buffered"
    """Through the page cache, which was asked to drop the file first."""
    READ_DIRECT = "read, direct"
    """Past the page cache (O_DIRECT)."""

    @property
    def is_direct(self) -> bool:
        """Whether the page cache is bypassed."""
        return self in {Mode.WRITE_DIRECT, Mode.READ_DIRECT}

    @property
    def is_write(self) -> bool:
        """Whether blocks are written."""
        return self in {Mode.WRITE_BUFFERED, Mode.WRITE_DIRECT}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Each cell ends with whichever comes first; the fsync of a buffered write is extra."""

    byte_count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One mode with one block size; `why_not` says why nothing was measured."""

    mode: Mode
    block_bytes: int
    byte_count: int = 0
    seconds: float = 0.0
    why_not: str = ""

    @property
    def bytes_per_second(self) -> float | None:
        """The rate, where there is one."""
        return self.byte_count / self.seconds if self.byte_count else None


class NoDirectIo(Exception):
    """The file system cannot bypass the page cache, or not with blocks this small."""


def measure(
    folder: Path, bounds: Bounds, block_sizes: Sequence[int] = BLOCK_SIZES
) -> Iterator[Cell]:
    """The cells of a folder one by one, by mode and increasing block size."""
    with _nameless_file(folder, _room(bounds, max(block_sizes))) as written:
        _fill(written, _room(bounds, max(block_sizes)))
        for mode in Mode:
            for block_bytes in block_sizes:
                if mode.is_write:
                    yield _measure_writing(folder, mode, block_bytes, bounds)
                else:
                    yield _measure_cell(written, mode, block_bytes, bounds)


def needed_bytes(bounds: Bounds) -> int:
    """Disk space that `measure` needs."""
    return 2 * _room(bounds, max(BLOCK_SIZES))


def _room(bounds: Bounds, largest_block: int) -> int:
    return max(bounds.byte_count, largest_block)


@contextmanager
def _nameless_file(folder: Path, length: int) -> Iterator[int]:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, length)
        yield file.fileno()


def _fill(descriptor: int, length: int) -> None:
    """Reserved blocks that were never written read as zeros without reaching the disk."""
    block = memoryview(os.urandom(MIB))
    for position in range(0, length, MIB):
        os.pwrite(descriptor, block[: length - position], position)
    os.fsync(descriptor)


def _measure_writing(folder: Path, mode: Mode, block_bytes: int, bounds: Bounds) -> Cell:
    """In a new file: to overwrite part of a page, the kernel would read it first."""
    with _nameless_file(folder, _room(bounds, block_bytes)) as descriptor:
        return _measure_cell(descriptor, mode, block_bytes, bounds)


def _measure_cell(descriptor: int, mode: Mode, block_bytes: int, bounds: Bounds) -> Cell:
    try:
        with _direct(descriptor, mode), _aligned_block(block_bytes) as block:
            byte_count, seconds = _move_blocks(descriptor, mode, block, bounds)
    except NoDirectIo as reason:
        return Cell(mode=mode, block_bytes=block_bytes, why_not=str(reason))
    return Cell(mode=mode, block_bytes=block_bytes, byte_count=byte_count, seconds=seconds)


def _move_blocks(
    descriptor: int, mode: Mode, block: mmap.mmap, bounds: Bounds
) -> tuple[int, float]:
    """Read or write blocks from the start of the file; returns bytes and seconds."""
    size = len(block)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    moved, started = 0, time.perf_counter()
    deadline = started + bounds.seconds
    while moved == 0 or (moved + size <= bounds.byte_count and time.perf_counter() < deadline):
        moved += _move(descriptor, mode, block, moved)
    if mode is Mode.WRITE_BUFFERED:
        os.fsync(descriptor)
    return moved, time.perf_counter() - started


def _move(descriptor: int, mode: Mode, block: mmap.mmap, position: int) -> int:
    try:
        if mode.is_write:
            return os.pwrite(descriptor, block, position)
        return os.preadv(descriptor, [block], position)
    except OSError as error:
        if mode.is_direct and error.errno == errno.EINVAL:
            raise NoDirectIo("below the disk's own block size") from error
        raise


@contextmanager
def _direct(descriptor: int, mode: Mode) -> Iterator[None]:
    """Bypass the page cache, if the mode says so."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if mode.is_direct:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        except OSError as error:
            raise NoDirectIo("the file system has no direct I/O") from error
    try:
        yield
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


@contextmanager
def _aligned_block(block_bytes: int) -> Iterator[mmap.mmap]:
    """Page-aligned memory, as direct I/O requires, already touched and not compressible."""
    with mmap.mmap(-1, block_bytes) as block:
        for position in range(0, block_bytes, MIB):
            block[position : position + MIB] = os.urandom(min(MIB, block_bytes - position))
        yield block
