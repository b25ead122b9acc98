"""Moves bytes from a socket to a file without bringing them into the program.

splice() needs a pipe between the two. On loopback with two shared cores it costs 0.31 CPU seconds
a GB where recv_into() and pwrite() cost 0.51 (medians of seven interleaved runs of 840 MB).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from app.ingest.source import BodySource

PIPE_BYTES = 1024 * 1024
"""What the pipe is asked to hold: the most an ordinary user may have by default."""

USEFUL_PIPE_BYTES = 256 * 1024
"""Past its quota of pipe memory a user gets pipes of a page or two, slower than copying."""


@runtime_checkable
class SpliceSource(BodySource, Protocol):
    """Capability of a source: it can move its bytes into a pipe."""

    @property
    def can_splice(self) -> bool:
        """Whether no bytes wait in the program, to be taken with `readinto` first."""
        ...

    def splice_into(self, pipe: int, count: int) -> int | None:
        """Like `readinto`, for at most `count` bytes, into a pipe that is empty."""
        ...


@dataclass(frozen=True, slots=True)
class Pipe:
    """Both ends of a pipe, and how many bytes it holds."""

    reader: int
    writer: int
    size: int

    def empty_into(self, descriptor: int, position: int, count: int) -> None:
        """Write the `count` bytes in the pipe to a file, at a position."""
        while count:
            moved = os.splice(self.reader, descriptor, count, offset_dst=position)
            count -= moved
            position += moved


@contextmanager
def open_pipe() -> Iterator[Pipe]:
    """A pipe for one body. It is closed after it: leftovers would head the next one."""
    reader, writer = os.pipe()
    try:
        with suppress(OSError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        yield Pipe(reader, writer, fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    finally:
        os.close(reader)
        os.close(writer)
