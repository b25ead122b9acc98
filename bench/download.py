"""Downloads of 1 GB: whole, and by ranges of 5 MB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.client import Connection, in_parallel, upload_raw
from bench.harness import GB, MB, Benchmark, Lab
from bench.meter import Meter
from bench.report import Table, spread

STEP_BYTES = 5 * MB
COLUMNS = ("case", "MB/s", "CPU s/GB", "peak memory above idle, MiB")
NOTES = (
    "The file is in the page cache. The client takes everything into one buffer and drops it. "
    "CPU and memory (PSS) are those of all processes of the server.",
)


@dataclass(frozen=True, slots=True)
class Target:
    """A published file."""

    port: int
    path: str
    length: int


def get_whole(target: Target) -> None:
    """One GET."""
    with Connection(target.port) as connection:
        connection.get(target.path)


def get_ranges(target: Target) -> None:
    """One range after the other on one connection."""
    with Connection(target.port) as connection:
        for start in range(0, target.length, STEP_BYTES):
            connection.get(target.path, (start, min(start + STEP_BYTES, target.length)))


def get_ranges_in_parallel(target: Target) -> None:
    """Four connections, each taking every fourth range."""

    def work(first: int) -> None:
        with Connection(target.port) as connection:
            for start in range(first * STEP_BYTES, target.length, 4 * STEP_BYTES):
                connection.get(target.path, (start, min(start + STEP_BYTES, target.length)))

    in_parallel(4, work)


CASES: dict[str, Callable[[Target], None]] = {
    "whole": get_whole,
    "ranges of 5 MB, in order": get_ranges,
    "ranges of 5 MB, 4 at once": get_ranges_in_parallel,
}


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    length = lab.pick(GB, GB // 4)
    source = lab.source(length)
    for number in lab.rounds():
        for name, job in CASES.items():
            with lab.server() as server:
                path = f"/media/{upload_raw(server.port, source, length)}"
                # Only after the upload, whose buffers would else count as idle memory of its own.
                with Meter(server.processes()) as meter:
                    job(Target(server.port, path, length))
                    lab.keep(meter.sample(name, number, length))
    return [
        Table(f"Download of {length / MB:.0f} MB", COLUMNS, [_row(lab, n) for n in CASES], NOTES)
    ]


def _row(lab: Lab, case: str) -> tuple[str, ...]:
    samples = lab.of(case)
    return (
        case,
        spread([sample.mb_per_second for sample in samples]),
        spread([(sample.cpu_seconds or 0) / sample.byte_count * GB for sample in samples], 2),
        spread([(sample.peak_bytes or 0) / 1024**2 for sample in samples], 1),
    )


BENCHMARK = Benchmark(
    name="download",
    summary="1 GB whole and by ranges",
    run=run,
    needed_bytes=2 * GB,
    rounds=5,
    seconds=120,
)
