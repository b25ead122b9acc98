"""The zero-copy table: a file through a program's 4 KB buffer, and by the kernel alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from bench.lib.client import Connection
from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, MB, costs_of, rates_of, ratio
from bench.lib.uploading import upload_raw
from bench.peers.uploads import await_digests

PUBLISHED = {
    7: (156, 45),
    21: (337, 128),
    63: (843, 387),
    98: (1320, 617),
    200: (2124, 1150),
    350: (3631, 1762),
    700: (13498, 4422),
    1000: (18399, 8537),
}
"""Size in MB to milliseconds of the write-up: ordinary, zero copy."""

MOST_QUICK_MB = 200
"""No larger file in a quick run."""

LOOP, OURS = "loop", "Sluice"

COLUMNS = (
    "MB",
    "4 KB loop, ms",
    "Sluice, ms",
    "less time",
    "CPU ms, loop",
    "CPU ms, Sluice",
    "write-up, ms",
    "less time there",
)
NOTES = (
    "Both send the same file, from the page cache, to the same client, in turn; medians. CPU: "
    "user + system of the sending processes. The loop is a bare socket program "
    "in Python; ours is a request through Flask, with its record read and the access log written.",
)


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    sizes = [size for size in PUBLISHED if size <= lab.pick(max(PUBLISHED), MOST_QUICK_MB)]
    source = lab.source(max(sizes) * MB)
    with lab.server() as server:
        ids = {size: upload_raw(server.port, source, size * MB) for size in sizes}
        await_digests(server.port, list(ids.values()))
        with _read_send_server(server.library) as loop:
            senders = {LOOP: loop, OURS: (server.port, server.processes())}
            for number in lab.rounds():
                for size, upload_id in ids.items():
                    path = f"/media/{upload_id}"
                    for name, (port, processes) in senders.items():
                        with Connection(port) as connection, Meter(processes) as meter:
                            received = connection.get(path)
                            sample = meter.sample(f"{size} MB, {name}", number, received)
                        lab.keep(sample)
    return [Table("A file to a socket", COLUMNS, [_row(lab, size) for size in sizes], NOTES)]


@contextmanager
def _read_send_server(folder: Path) -> Iterator[tuple[int, list[psutil.Process]]]:
    command = [sys.executable, "-m", "bench.peers.read_send_server", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), [psutil.Process(process.pid)]
        finally:
            process.kill()


def _row(lab: Lab, size: int) -> tuple[str, ...]:
    loop, ours = (lab.of(f"{size} MB, {sender}") for sender in (LOOP, OURS))
    share = ratio([sample.seconds for sample in ours], [sample.seconds for sample in loop])
    ordinary, zero = PUBLISHED[size]
    return (
        str(size),
        f"{median(sample.seconds for sample in loop) * 1000:.0f}",
        f"{median(sample.seconds for sample in ours) * 1000:.0f}",
        f"{100 - float(share) * 100:.0f} %",
        f"{median(sample.cpu_seconds or 0 for sample in loop) * 1000:.0f}",
        f"{median(sample.cpu_seconds or 0 for sample in ours) * 1000:.0f}",
        f"{ordinary} / {zero}",
        f"{100 - zero / ordinary * 100:.0f} %",
    )


def draw(lab: Lab) -> Plot:
    """Rates and costs of both at all sizes."""
    cases = lab.cases()
    ours = [name for name in cases if name.endswith(OURS)]
    panels = [
        panel_of("MB/s", cases, rates_of, ours=ours),
        panel_of("CPU s/GB", cases, costs_of, ours=ours, digits=2),
    ]
    return Plot("A file to a socket", tuple(panels))


BENCHMARK = Benchmark(
    name="zero_copy",
    summary="eight sizes through a 4 KB buffer and with sendfile",
    run=run,
    draw=draw,
    needed_bytes=4 * GB,
    rounds=7,
    seconds=120,
    quick_seconds=7,
)
