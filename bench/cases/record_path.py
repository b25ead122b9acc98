"""What `app/db/sql.py` saves of a chunk's CPU: its statements, and its shared commits.

Statements run on SQLite, beside SQLAlchemy's `execute`. Commits are shared on PostgreSQL, beside
one for each chunk. The two servers of a comparison run at once and take turns, so that each pair of
samples met the same machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import psutil

from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter
from bench.lib.parallel import in_threads
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, paired_ratio, spread
from bench.lib.uploading import upload_tus
from tests.postgresql import postgresql

CHUNK_BYTES = 64 * 1024
CHUNKS, QUICK_CHUNKS = 1600, 160
"""Of a sample, over all connections."""

OPTIONS = {"SLUICE_WORKERS": "1", "SLUICE_DURABILITY": "none", "SLUICE_CHUNK_BYTES": "65536"}


@dataclass(frozen=True)
class Comparison:
    """Two servers, ours first: what they are called, and the module that runs each."""

    title: str
    servers: dict[str, str]
    connections: int
    is_on_postgresql: bool

    @property
    def ours(self) -> str:
        """The case of the server as it is."""
        return next(iter(self.servers))


STATEMENTS = Comparison(
    "The record of a chunk, SQLite, one upload",
    {
        "compiled once, run by the driver": "app.run.server.supervisor",
        "SQLAlchemy's execute": "bench.lib.execute_wsgi",
    },
    connections=1,
    is_on_postgresql=False,
)

COMMITS = Comparison(
    "The record of a chunk, PostgreSQL, 16 uploads at once",
    {
        "chunks share a commit": "app.run.server.supervisor",
        "a commit for each chunk": "bench.lib.commit_each_wsgi",
    },
    connections=16,
    is_on_postgresql=True,
)

NOTE = (
    "CPU of the server in milliseconds a chunk, and of PostgreSQL where it has the records: tus "
    "PATCHes of 64 KiB to one worker. The ratio is the median of the pairs. No file is synced; "
    "PostgreSQL's `fsync` and `synchronous_commit` are on."
)


def run(lab: Lab) -> list[Table]:
    """Measure and tell; a quick run leaves out PostgreSQL, which takes seconds to start."""
    comparisons = (STATEMENTS,) if lab.is_quick else (STATEMENTS, COMMITS)
    return [_compare(lab, comparison) for comparison in comparisons]


def _compare(lab: Lab, comparison: Comparison) -> Table:
    count = lab.pick(CHUNKS, QUICK_CHUNKS) * CHUNK_BYTES
    length = count // comparison.connections
    source = lab.source(length)
    with ExitStack() as stack:
        on_postgresql = comparison.is_on_postgresql
        database = stack.enter_context(postgresql(is_safe=True)) if on_postgresql else None
        servers = {}
        for name, module in comparison.servers.items():
            options = dict(OPTIONS)
            if database is not None:
                options["SLUICE_DATABASE_URL"] = database.create(name)
            servers[name] = stack.enter_context(lab.server(module, **options))
        for number in lab.rounds():
            for name in sorted(servers, reverse=bool(number % 2)):
                processes = servers[name].processes()
                if database is not None:
                    processes += psutil.Process(database.pid).children()

                def upload(_: int, port: int = servers[name].port) -> str:
                    return upload_tus(port, source, length, base="/tus/", chunk_bytes=CHUNK_BYTES)

                with Meter(processes) as meter:
                    in_threads(comparison.connections, upload)
                    lab.keep(meter.sample(name, number, count))
    return _table(lab, comparison)


def _milliseconds_a_chunk(samples: Sequence[Sample]) -> list[float]:
    return [
        (sample.cpu_seconds or 0) * 1000 / (sample.byte_count / CHUNK_BYTES) for sample in samples
    ]


def _table(lab: Lab, comparison: Comparison) -> Table:
    base = _milliseconds_a_chunk(lab.of(comparison.ours))
    rows: list[tuple[str, ...]] = []
    for name in comparison.servers:
        costs = _milliseconds_a_chunk(lab.of(name))
        found = paired_ratio(costs, base)
        rows.append((name, spread(costs, 2), "-" if found is None else f"{found:.2f}"))
    return Table(comparison.title, ("records", "CPU ms a chunk", "ratio"), rows, (NOTE,))


def draw(lab: Lab) -> Plot:
    """A panel for each comparison."""
    panels = []
    for comparison in (STATEMENTS, COMMITS):
        cases = {name: lab.of(name) for name in comparison.servers}
        ours = [comparison.ours]
        panels.append(panel_of("CPU ms a chunk", cases, _milliseconds_a_chunk, ours=ours, digits=2))
    return Plot("The record of a chunk", tuple(panels))


BENCHMARK = Benchmark(
    name="record_path",
    summary="a chunk's CPU with statements compiled once and commits shared, and without",
    run=run,
    draw=draw,
    needed_bytes=GB,
    rounds=9,
    quick_seconds=2,
)
