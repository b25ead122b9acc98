"""Whether a part of a large file costs the same whatever came before it, and what completing costs.

S3 numbers parts up to 10,000. Rows of the earlier parts are inserted; the parts that are measured
are real, and so are all those of files that are completed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
from sqlalchemy import insert, update

from app.core.cells import MOST_CELLS, part_number
from app.core.ranges import ByteRange, RangeSet
from app.db.engine import Database
from app.db.tables import stored_cells, uploads
from app.ingest.copy import BodyLimits
from app.storage.s3.address import AccessKey, BucketAddress
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.store import BucketStore
from bench.lib.client import Connection, FileSlice
from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.meter import Meter, cpu_seconds_of
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, Sample, paired_ratio, ratio, spread
from bench.lib.uploading import CHUNK_BYTES, TUS_VERSION
from bench.peers.buckets import running_garage, running_postgresql
from scripts.fleet.postgresql import Postgresql
from scripts.fleet.s3_servers import Access, S3Server
from tests.records.making import new_sqlite
from tests.storage.sources import PiecesSource

PARTS = (10, 1000, MOST_CELLS - 40)
"""Parts before the first one that is measured; numbers of parts are three times as high."""

COMPLETED = (10, 50, 200)
QUICK_COMPLETED = (4, 10)
SMALL_PART_BYTES = 5 * 1024 * 1024
"""The smallest that S3 joins to others."""

CHUNKS, QUICK_CHUNKS = 20, 3
ALLOWED = 1.2
"""What a late part may cost, as a multiple of an early one."""

TUS_TYPE = "application/offset+octet-stream"
LIMITS = BodyLimits(idle_seconds=60.0, minimum_bytes_per_second=0.0)
STATEMENT = re.compile(r"LOG:  (?:execute|statement).*\b(?:stored_\w+|uploads)\b")
"""A line of PostgreSQL's log; what nodes do beside uploads names other tables."""


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` without Garage or PostgreSQL."""
    source = lab.source(CHUNK_BYTES)
    with running_garage(lab) as store, running_postgresql() as postgresql:
        postgresql.ask("ALTER SYSTEM SET log_statement = 'all'")
        postgresql.ask("SELECT pg_reload_conf()")
        url = postgresql.create("sluice")
        settings = {"SLUICE_DATABASE_URL": url, **store.access.settings("node")}
        with lab.server(**settings) as server, closing(Database(url, synced=False)) as database:
            for number in lab.rounds():
                for count in lab.in_time(PARTS[:: -1 if number % 2 else 1]):
                    upload = _begin(server, database, source, count)
                    _measure_chunks(lab, number, server, postgresql, upload)
        for number in lab.rounds():
            for count in lab.in_time(_completed(lab)):
                _measure_complete(lab, number, store, count)
    return [_part_table(lab), _complete_table(lab), _targets(lab)]


@dataclass(slots=True)
class _Begun:
    """An upload that has `parts` parts, and lacks the rest."""

    parts: int
    path: str
    offset: int
    source: Path

    def send(self, connection: Connection, count: int) -> None:
        """Send so many more chunks, each a part."""
        for _ in range(count):
            headers = {"Upload-Offset": str(self.offset), "Content-Type": TUS_TYPE}
            body = FileSlice(self.source, 0, CHUNK_BYTES)
            connection.request(f"PATCH {self.path}", {**TUS_VERSION, **headers}, body)
            self.offset += CHUNK_BYTES


def _begin(server: BenchServer, database: Database, source: Path, parts: int) -> _Begun:
    """Two real parts, then rows of others up to `parts`."""
    with Connection(server.port) as connection:
        headers = {**TUS_VERSION, "Upload-Length": str(MOST_CELLS * CHUNK_BYTES)}
        created = connection.request("POST /tus/", headers)
        upload = _Begun(parts, urlsplit(created.headers["Location"]).path, 0, source)
        upload.send(connection, 2)
    key = upload.path.rpartition("/")[2]
    rows = [_row_of(key, cell) for cell in range(2, parts)]
    upload.offset = parts * CHUNK_BYTES
    received = RangeSet.of([ByteRange(0, upload.offset)])
    with database.write() as connection:
        connection.execute(insert(stored_cells), rows)
        connection.execute(update(uploads).where(uploads.c.id == key).values(received=received))
    return upload


def _row_of(key: str, cell: int) -> dict[str, object]:
    part = {"part_number": part_number(cell, 0), "length": CHUNK_BYTES, "through": 0}
    stamp = {"etag": f'"{uuid4().hex}"', "crc32c": "AAAAAA=="}
    return {"key": key, "cell": cell, "epoch": 0, "leased_until": datetime.now(UTC)} | part | stamp


def _measure_chunks(
    lab: Lab, number: int, server: BenchServer, postgresql: Postgresql, upload: _Begun
) -> None:
    count = lab.pick(CHUNKS, QUICK_CHUNKS)
    with Connection(server.port) as connection:
        upload.send(connection, 1)
        before = _statements(postgresql)
        with Meter(server.processes()) as meter:
            upload.send(connection, count)
            sample = meter.sample(_after(upload.parts), number, count * CHUNK_BYTES)
        statements = _statements(postgresql) - before
    lab.keep(sample)
    rate = replace(
        sample, case=f"statements {_after(upload.parts)}", cpu_seconds=statements / count
    )
    lab.samples.append(rate)


def _statements(postgresql: Postgresql) -> int:
    return len(STATEMENT.findall((postgresql.folder / "log").read_text(errors="replace")))


def _after(parts: int) -> str:
    return f"after {parts} parts"


def _completed(lab: Lab) -> Sequence[int]:
    return QUICK_COMPLETED if lab.is_quick else COMPLETED


def _measure_complete(lab: Lab, number: int, store: S3Server, parts: int) -> None:
    """In this process, with the smallest parts: they are not what is measured."""
    key, length, block = uuid4().hex, parts * SMALL_PART_BYTES, bytes(SMALL_PART_BYTES)
    keeper = [psutil.Process(store.program.pid)]
    with lab.scratch("node") as folder, _bucket_store(folder, store.access) as ours:
        ours.staging.reserve(key, length)
        for start in range(0, length, SMALL_PART_BYTES):
            span = ByteRange(start, start + SMALL_PART_BYTES)
            with ours.staging.writer(key, span, LIMITS) as writer:
                writer.write(span, PiecesSource(block), lambda _: None)
        started, cpu_before = time.perf_counter(), time.process_time()
        store_before = cpu_seconds_of(keeper)
        ours.library.publish(key, length)
        lab.keep(
            Sample(
                case=f"complete {parts} parts",
                round=number,
                byte_count=0,
                seconds=time.perf_counter() - started,
                cpu_seconds=time.process_time() - cpu_before,
                store_cpu_seconds=cpu_seconds_of(keeper) - store_before,
            )
        )


@contextmanager
def _bucket_store(folder: Path, access: Access) -> Iterator[BucketStore]:
    storage = f"s3://{access.bucket}/completed"
    address = BucketAddress.of(storage, endpoint=access.endpoint, region=access.region)
    bucket = Bucket.at(address, key=lambda: AccessKey(access.key, access.secret))
    with closing(new_sqlite(folder / "sluice.db")) as database:
        yield BucketStore(
            *(bucket, BucketCatalog(database), folder / "staging"),
            spool_bytes=2 * SMALL_PART_BYTES,
            smallest_cell_bytes=SMALL_PART_BYTES,
        )


def _milliseconds_a_chunk(samples: Sequence[Sample]) -> list[float]:
    return [(one.cpu_seconds or 0) * 1000 / (one.byte_count / CHUNK_BYTES) for one in samples]


def _milliseconds(samples: Sequence[Sample]) -> list[float]:
    return [one.seconds * 1000 for one in samples]


def _part_table(lab: Lab) -> Table:
    base = _milliseconds_a_chunk(lab.of(_after(PARTS[0])))
    rows: list[tuple[str, ...]] = []
    for parts in PARTS:
        costs = _milliseconds_a_chunk(lab.of(_after(parts)))
        statements = [one.cpu_seconds or 0 for one in lab.of(f"statements {_after(parts)}")]
        rows.append(
            (
                str(parts),
                str(part_number(parts, 0)),
                spread(costs, 1),
                ratio(costs, base),
                spread(statements, 1),
            )
        )
    columns = ("parts before", "number", "CPU ms a chunk", "of the first", "statements a chunk")
    note = (
        "CPU of the node for a chunk of 20 MiB that becomes a part, on PostgreSQL. Statements: "
        "those that name the tables of uploads or of the bucket, in PostgreSQL's log."
    )
    return Table("A part late in an upload", columns, rows, (note,))


def _complete_table(lab: Lab) -> Table:
    rows: list[tuple[str, ...]] = []
    for parts in _completed(lab):
        samples = lab.of(f"complete {parts} parts")
        ours = [(one.cpu_seconds or 0) * 1000 for one in samples]
        theirs = [(one.store_cpu_seconds or 0) * 1000 for one in samples]
        rows.append((str(parts), *(spread(v, 0) for v in (_milliseconds(samples), ours, theirs))))
    columns = ("parts", "milliseconds", "CPU ms of the node", "CPU ms of Garage")
    note = "From the last byte to the published file: parts of 5 MiB, on SQLite."
    return Table("Completing a file", columns, rows, (note,))


def _targets(lab: Lab) -> Table:
    first, last = (_milliseconds_a_chunk(lab.of(_after(parts))) for parts in (PARTS[0], PARTS[-1]))
    what = f"part {part_number(PARTS[-1], 0)}: CPU, of part {part_number(PARTS[0], 0)}"
    return target_table([Target(what=what, measured=paired_ratio(last, first), at_most=ALLOWED)])


def draw(lab: Lab) -> Plot:
    """The cost of a chunk after so many others, and of completing so many."""
    parts, completed = lab.cases("after "), lab.cases("complete ")
    panels = [
        panel_of("CPU ms a chunk after", parts, _milliseconds_a_chunk, ours=parts, digits=1),
        panel_of("Milliseconds to complete", completed, _milliseconds, ours=completed),
    ]
    return Plot("Many parts in a bucket", tuple(panels))


BENCHMARK = Benchmark(
    name="bucket_parts",
    summary="a part late in a large file, and completing files of many parts",
    run=run,
    draw=draw,
    needed_bytes=2 * GB,
    rounds=3,
    seconds=300,
    quick_seconds=2,
)
