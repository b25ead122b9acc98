"""What `app/db/sql.py` saves of a chunk's CPU, beside SQLAlchemy's `execute`.

Both servers run at once and take turns, so that each pair of samples met the same machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, paired_ratio, spread
from bench.lib.uploading import upload_tus

CHUNK_BYTES = 64 * 1024
CHUNKS, QUICK_CHUNKS = 800, 100

DRIVER, EXECUTE = "compiled once, run by the driver", "SQLAlchemy's execute"
SERVERS = {DRIVER: "app.run.server.supervisor", EXECUTE: "bench.lib.execute_wsgi"}
OPTIONS = {"SLUICE_WORKERS": "1", "SLUICE_DURABILITY": "none", "SLUICE_CHUNK_BYTES": "65536"}

NOTE = (
    "CPU of the server in milliseconds a chunk: tus PATCHes of 64 KiB over one connection, to one "
    "worker. The ratio is the median of the pairs. Nothing is synced."
)


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    length = lab.pick(CHUNKS, QUICK_CHUNKS) * CHUNK_BYTES
    source = lab.source(length)
    with (
        lab.server(SERVERS[DRIVER], **OPTIONS) as ours,
        lab.server(SERVERS[EXECUTE], **OPTIONS) as other,
    ):
        servers = {DRIVER: ours, EXECUTE: other}
        for number in lab.rounds():
            for name in sorted(servers, reverse=bool(number % 2)):
                _measure(lab, number, name, servers[name], source)
    return [_table(lab)]


def _measure(lab: Lab, number: int, name: str, server: BenchServer, source: Path) -> None:
    length = source.stat().st_size
    with Meter(server.processes()) as meter:
        upload_tus(server.port, source, length, base="/tus/", chunk_bytes=CHUNK_BYTES)
        lab.keep(meter.sample(name, number, length))


def _milliseconds_a_chunk(samples: Sequence[Sample]) -> list[float]:
    return [
        (sample.cpu_seconds or 0) * 1000 / (sample.byte_count / CHUNK_BYTES) for sample in samples
    ]


def _table(lab: Lab) -> Table:
    base = _milliseconds_a_chunk(lab.of(DRIVER))
    rows: list[tuple[str, ...]] = []
    for name in SERVERS:
        costs = _milliseconds_a_chunk(lab.of(name))
        found = paired_ratio(costs, base)
        rows.append((name, spread(costs, 2), "-" if found is None else f"{found:.2f}"))
    return Table("The record of a chunk", ("statements", "CPU ms a chunk", "ratio"), rows, (NOTE,))


def draw(lab: Lab) -> Plot:
    """Both."""
    cases = lab.cases()
    panel = panel_of("CPU ms a chunk", cases, _milliseconds_a_chunk, ours=[DRIVER], digits=2)
    return Plot("The record of a chunk", (panel,))


BENCHMARK = Benchmark(
    name="record_path",
    summary="a chunk's CPU with the record's statements compiled once, and without",
    run=run,
    draw=draw,
    needed_bytes=GB,
    rounds=9,
    quick_seconds=2,
)
