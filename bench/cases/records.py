"""Chunks' records a second: in a file, and on a PostgreSQL server on the same disk.

The databases take turns, so that each pair of samples met the same machine. Each commit is on the
disk before it is acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from app.domain.ranges import ByteRange
from app.records.engine import Database
from app.records.uploads import UploadRecords
from bench.lib.harness import Benchmark, Lab
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, paired_ratio, spread
from tests.postgresql import postgresql
from tests.records.making import NOW, new_upload

RECORDS = {1: 400, 16: 3200}
"""By the number of threads, so that each sample takes some seconds."""

QUICK_SHARE = 10

SQLITE, SERVER, DELAYED = "SQLite", "PostgreSQL", "PostgreSQL, commit_delay"

DELAY = "&options=-c%20commit_delay%3D200%20-c%20commit_siblings%3D3"
"""Commits wait 0.2 ms for others if at least three are under way, and share a write to the disk."""

NOTE = (
    "Each thread records chunks of an upload of its own, one after another, in one process with at "
    "most 8 connections to the server. `synchronous_commit` and `fsync` are on, and SQLite's "
    "`synchronous` is FULL. The ratio is the median of the pairs."
)


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    with _databases() as databases:
        for number in lab.rounds():
            for threads in RECORDS:
                for name in sorted(databases, reverse=bool(number % 2)):
                    seconds = _seconds(lab, UploadRecords(databases[name]), threads)
                    case = _case(name, threads)
                    lab.keep(Sample(case=case, round=number, byte_count=0, seconds=seconds))
    return [_table(lab)]


@contextmanager
def _databases() -> Iterator[dict[str, Database]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sluice-bench-")))
        url = stack.enter_context(postgresql(is_safe=True)).create("records")
        urls = {SQLITE: f"sqlite:///{folder / 'sluice.db'}", SERVER: url, DELAYED: url + DELAY}
        found = {name: Database(urls[name], synced=True) for name in urls}
        for database in found.values():
            stack.enter_context(closing(database))
            database.migrate()
        yield found


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
        for name in (SQLITE, SERVER, DELAYED):
            rates = _rates(lab, threads, lab.of(_case(name, threads)))
            found = paired_ratio(rates, base)
            ratio = "-" if found is None else f"{found:.2f}"
            rows.append((_case(name, threads), spread(rates), ratio))
    return Table("Records a second", ("database", "records/s", "ratio"), rows, (NOTE,))


def _rates(lab: Lab, threads: int, samples: Sequence[Sample]) -> list[float]:
    """Records a second of each sample."""
    return [_count(lab, threads) / sample.seconds for sample in samples]


def draw(lab: Lab) -> Plot:
    """One panel for each number of threads."""
    panels = []
    for threads in RECORDS:
        names = [_case(name, threads) for name in (SQLITE, SERVER, DELAYED)]
        cases = {name: lab.of(name) for name in names}
        rates = partial(_rates, lab, threads)
        panels.append(panel_of("records/s", cases, rates, ours=names[:1]))
    return Plot("Records a second", tuple(panels))


BENCHMARK = Benchmark(
    name="records",
    summary="records of chunks a second, in a file and on a PostgreSQL server",
    run=run,
    draw=draw,
    needed_bytes=GB // 10,
    rounds=5,
    quick_seconds=2,
)
