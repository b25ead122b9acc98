"""Chunks' records a second: in a file, and on a PostgreSQL server on the same machine and disk.

The server also behind PgBouncer, in transaction mode, where it is installed. The databases take
turns, so that each pair of samples met the same machine. Each commit is on the disk before it is
acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from psutil import Process

from app.core.ranges import ByteRange
from app.db.engine import Database
from app.records.uploads import UploadRecords
from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import cpu_seconds_of
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, ratio, spread
from tests.postgresql import Postgresql, find_pgbouncer, pgbouncer, postgresql, set_limits
from tests.records.making import NOW, new_upload

RECORDS = {1: 400, 16: 3200}
"""By the number of threads, so that each sample takes some seconds."""

QUICK_SHARE = 10

SQLITE, SERVER, POOLED = NAMES = "SQLite", "PostgreSQL", "PostgreSQL behind PgBouncer"

SESSIONS = 8
"""Of PgBouncer for the database: as many as the process has connections."""

NOTE = (
    "Each thread records chunks of an upload of its own, one after another, in one process with at "
    "most 8 connections to the server. `synchronous_commit` and `fsync` are on, and SQLite's "
    "`synchronous` is FULL. CPU is that of this process and of the server, without PgBouncer's. "
    "Behind PgBouncer statements are not prepared. The ratio is the median of the pairs."
)


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    with postgresql(is_safe=True) as server, _databases(server) as databases:
        for number in lab.rounds():
            for threads in RECORDS:
                for name in sorted(databases, reverse=bool(number % 2)):
                    records = UploadRecords(databases[name])
                    cpu_before = _cpu_seconds(server)
                    seconds = _seconds(lab, records, threads)
                    lab.keep(
                        Sample(
                            case=_case(name, threads),
                            round=number,
                            byte_count=0,
                            seconds=seconds,
                            cpu_seconds=_cpu_seconds(server) - cpu_before,
                        )
                    )
    return [_table(lab)]


@contextmanager
def _databases(server: Postgresql) -> Iterator[dict[str, Database]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sluice-bench-")))
        urls = {SQLITE: f"sqlite:///{folder / 'sluice.db'}", SERVER: server.create("records")}
        if find_pgbouncer() is not None:
            set_limits(server)
            pooler = stack.enter_context(pgbouncer(server, sessions=SESSIONS))
            urls[POOLED] = pooler.pooled(server.create("pooled records"))
        found = {name: Database(urls[name], synced=True) for name in urls}
        for database in found.values():
            stack.enter_context(closing(database))
            database.migrate()
        yield found


def _cpu_seconds(server: Postgresql) -> float:
    """Of this process and of the server's."""
    return cpu_seconds_of([Process(), *Process(server.pid).children()])


def _seconds(lab: Lab, records: UploadRecords, threads: int) -> float:
    """How long `threads` threads take to record all chunks."""
    each = _count(lab, threads) // threads
    uploads = [records.add(new_upload(length=each + 1))[0] for _ in range(threads)]

    def send(thread: int) -> None:
        upload = uploads[thread]
        for start in range(each):
            upload = records.add_received(upload, ByteRange(start, start + 1), NOW)

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(threads)))
    return time.perf_counter() - began


def _count(lab: Lab, threads: int) -> int:
    return lab.pick(RECORDS[threads], RECORDS[threads] // QUICK_SHARE)


def _case(name: str, threads: int) -> str:
    return f"{name}, {threads} thread{'s' * (threads > 1)}"


def _table(lab: Lab) -> Table:
    rows: list[tuple[str, ...]] = []
    for threads in RECORDS:
        base = _rates(lab, threads, lab.of(_case(SQLITE, threads)))
        for name in _measured(lab):
            samples = lab.of(_case(name, threads))
            rates = _rates(lab, threads, samples)
            costs = [(each.cpu_seconds or 0) * 1000 / _count(lab, threads) for each in samples]
            rows.append((_case(name, threads), spread(rates), ratio(rates, base), spread(costs, 2)))
    columns = ("database", "records/s", "ratio", "CPU ms a record")
    return Table("Records a second", columns, rows, (NOTE,))


def _measured(lab: Lab) -> list[str]:
    return [name for name in NAMES if lab.of(_case(name, 1))]


def _rates(lab: Lab, threads: int, samples: Sequence[Sample]) -> list[float]:
    """Records a second of each sample."""
    return [_count(lab, threads) / sample.seconds for sample in samples]


def draw(lab: Lab) -> Plot:
    """One panel for each number of threads."""
    panels = []
    for threads in RECORDS:
        names = [_case(name, threads) for name in _measured(lab)]
        cases = {name: lab.of(name) for name in names}
        rates = partial(_rates, lab, threads)
        panels.append(panel_of("records/s", cases, rates, ours=names[:1]))
    return Plot("Records a second", tuple(panels))


BENCHMARK = Benchmark(
    name="records",
    summary="records of chunks a second, in a file and on PostgreSQL, also behind PgBouncer",
    run=run,
    draw=draw,
    needed_bytes=GB // 10,
    rounds=5,
    quick_seconds=2,
)
