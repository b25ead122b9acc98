"""Ways from a socket to the disk: copy or splice, size of the blocks, and early writeback.

No server: one process sends a file, another takes it in chunks, as the server's inner loop does.
"""

from __future__ import annotations

import mmap
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.ingest.copy import empty_pipe
from app.storage.local.range_writer import begin_writeback
from bench.lib.harness import Benchmark, Lab
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, costs_of, rates_of, ratio, spread
from bench.lib.uploading import CHUNK_BYTES

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Way:
    """How bytes are taken in; sizes in MiB, 0 for never."""

    name: str
    block: int = 0
    is_direct: bool = False
    is_preallocated: bool = True
    writeback_step: int = 0
    is_synced: bool = True


WAYS = [
    Way("copy, 1 MiB", block=1),
    Way("copy, 4 MiB", block=4),
    Way("copy, 20 MiB", block=20),
    Way("splice"),
    Way("splice, file grows", is_preallocated=False),
    Way("splice, writeback every 1 MiB", writeback_step=1),
    Way("splice, writeback every 4 MiB", writeback_step=4),
    Way("splice, writeback every 8 MiB", writeback_step=8),
    Way("copy, 1 MiB, writeback every 4 MiB", block=1, writeback_step=4),
    Way("O_DIRECT, 1 MiB", block=1, is_direct=True),
    Way("O_DIRECT, 4 MiB", block=4, is_direct=True),
    Way("O_DIRECT, 20 MiB", block=20, is_direct=True),
    Way("copy, 1 MiB, never synced", block=1, is_synced=False),
    Way("splice, never synced", is_synced=False),
]
BASE = "splice"
OURS = "splice, writeback every 4 MiB"
"""What the server does."""


class Intake:
    """Takes chunks from a socket into one file."""

    def __init__(self, way: Way, connection: socket.socket, descriptor: int) -> None:
        self._way = way
        self._connection = connection
        self._descriptor = descriptor
        # An anonymous map begins at a page, as O_DIRECT wants it.
        self._buffer = memoryview(mmap.mmap(-1, max(way.block, 1) * MIB))
        self._written_back = 0

    def take(self, start: int, end: int) -> None:
        """One chunk, and wait for the disk as the way says."""
        take = self._copy if self._way.block else self._splice
        take(start, end)
        if self._way.is_synced:
            os.fdatasync(self._descriptor)
        self._written_back = end

    def _copy(self, position: int, end: int) -> None:
        while position < end:
            block = self._buffer[: min(len(self._buffer), end - position)]
            filled = 0
            while filled < len(block):
                filled += self._connection.recv_into(block[filled:])
            os.pwrite(self._descriptor, block, position)
            position += filled
            self._begin_writeback(position)

    def _splice(self, position: int, end: int) -> None:
        with empty_pipe() as pipe:
            while position < end:
                count = os.splice(
                    self._connection.fileno(), pipe.writer, min(pipe.size, end - position)
                )
                pipe.empty_into(self._descriptor, position, count)
                position += count
                self._begin_writeback(position)

    def _begin_writeback(self, position: int) -> None:
        """Tell the kernel to begin writing what has arrived, without waiting for it."""
        fresh = position - self._written_back
        if self._way.writeback_step and fresh >= self._way.writeback_step * MIB:
            begin_writeback(self._descriptor, self._written_back, fresh)
            self._written_back = position


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    source = lab.source(_length(lab))
    for number in lab.rounds():
        for way in lab.in_time(WAYS):
            _measure(lab, number, way, source)
    return [_table(lab)]


def _length(lab: Lab) -> int:
    return lab.pick(50, 3) * CHUNK_BYTES


def _measure(lab: Lab, number: int, way: Way, source: Path) -> None:
    length = source.stat().st_size
    with lab.scratch("way") as folder, _sender(source) as connection:
        lab.settle()
        descriptor = _open(folder / "target", way, length)
        try:
            intake = Intake(way, connection, descriptor)
            before, started = _cpu_seconds(), time.perf_counter()
            for start in range(0, length, CHUNK_BYTES):
                intake.take(start, start + CHUNK_BYTES)
            seconds, cpu_seconds = time.perf_counter() - started, _cpu_seconds() - before
        finally:
            os.close(descriptor)
    lab.keep(
        Sample(
            case=way.name,
            round=number,
            byte_count=length,
            seconds=seconds,
            cpu_seconds=cpu_seconds,
        )
    )


def _open(path: Path, way: Way, length: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | (os.O_DIRECT if way.is_direct else 0)
    descriptor = os.open(path, flags)
    if way.is_preallocated:
        os.posix_fallocate(descriptor, 0, length)
    return descriptor


@contextmanager
def _sender(source: Path) -> Iterator[socket.socket]:
    """A connection over loopback that a process of its own sends the file into."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            _send_and_exit(listener.getsockname(), source)
        connection, _ = listener.accept()
        with connection:
            yield connection
        os.waitpid(child, 0)


def _send_and_exit(address: tuple[str, int], source: Path) -> None:
    try:
        with socket.create_connection(address) as connection, source.open("rb") as file:
            connection.sendfile(file)
    finally:
        os._exit(0)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _table(lab: Lab) -> Table:
    rows: list[tuple[str, ...]] = []
    for way in WAYS:
        rates, costs = rates_of(lab.of(way.name)), costs_of(lab.of(way.name))
        rows.append(
            (way.name, spread(rates), ratio(rates, rates_of(lab.of(BASE))), spread(costs, 2))
        )
    columns: tuple[str, ...] = ("way", "MB/s", f"of {BASE}", "CPU s/GB")
    notes = (
        f"Chunks of 20 MiB into a file of {_length(lab) // MIB} MiB, preallocated unless it grows; "
        "fdatasync after each chunk unless never synced.",
    )
    return Table("From a socket to the disk", columns, rows, notes)


def draw(lab: Lab) -> Plot:
    """Rates and costs of all ways."""
    panels = [
        panel_of("MB/s", lab.cases(), rates_of, ours=[OURS]),
        panel_of("CPU s/GB", lab.cases(), costs_of, ours=[OURS], digits=2),
    ]
    return Plot("From a socket to the disk", tuple(panels))


BENCHMARK = Benchmark(
    name="write_path",
    summary="blocks, splice, early writeback, O_DIRECT",
    run=run,
    draw=draw,
    needed_bytes=3 * GB,
    rounds=5,
    quick_seconds=4,
)
