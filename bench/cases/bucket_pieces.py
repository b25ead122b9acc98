"""Measures whether the cost of a chunk grows with the number of pieces its file already has.

Rows of the earlier pieces are inserted; those that are measured are real.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from sqlalchemy import insert, update

from app.core.pieces import MOST_LONG_PIECES
from app.core.ranges import ByteRange, RangeSet
from app.db.engine import Database
from app.db.tables import stored_parts, stored_pieces, uploads
from bench.lib.client import Connection, FileSlice
from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, Sample, paired_ratio, ratio, spread
from bench.lib.uploading import CHUNK_BYTES, TUS_VERSION
from bench.peers.buckets import running_garage, running_postgresql
from scripts.fleet.postgresql import Postgresql

PIECES = (10, 1000, MOST_LONG_PIECES - 40)
"""Pieces before the first one that is measured."""

CHUNKS, QUICK_CHUNKS = 20, 3
ALLOWED = 1.2
"""What a late chunk may cost, as a multiple of an early one."""

TUS_TYPE = "application/offset+octet-stream"
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
                for count in lab.in_time(PIECES[:: -1 if number % 2 else 1]):
                    upload = _begin(server, database, source, count)
                    _measure_chunks(lab, number, server, postgresql, upload)
    return [_piece_table(lab), _targets(lab)]


@dataclass(slots=True)
class _Begun:
    """An upload that has `pieces` pieces, and lacks the rest."""

    pieces: int
    path: str
    offset: int
    source: Path

    def send(self, connection: Connection, count: int) -> None:
        """Send so many more chunks, each a piece."""
        for _ in range(count):
            headers = {"Upload-Offset": str(self.offset), "Content-Type": TUS_TYPE}
            body = FileSlice(self.source, 0, CHUNK_BYTES)
            connection.request(f"PATCH {self.path}", {**TUS_VERSION, **headers}, body)
            self.offset += CHUNK_BYTES


def _begin(server: BenchServer, database: Database, source: Path, pieces: int) -> _Begun:
    """A real piece, then rows of others up to `pieces`, and of a part that has them all."""
    with Connection(server.port) as connection:
        headers = {**TUS_VERSION, "Upload-Length": str(MOST_LONG_PIECES * CHUNK_BYTES)}
        created = connection.request("POST /tus/", headers)
        upload = _Begun(pieces, urlsplit(created.headers["Location"]).path, 0, source)
        upload.send(connection, 1)
    key = upload.path.rpartition("/")[2]
    rows = [_row_of(key, number) for number in range(1, pieces)]
    upload.offset = pieces * CHUNK_BYTES
    received = RangeSet.of([ByteRange(0, upload.offset)])
    part = {
        "key": key,
        "number": pieces,
        "end": upload.offset,
        "etag": "none",
        "crc32c": "AAAAAA==",
    }
    with database.write() as connection:
        connection.execute(insert(stored_pieces), rows)
        connection.execute(insert(stored_parts), part)
        connection.execute(update(uploads).where(uploads.c.id == key).values(received=received))
    return upload


def _row_of(key: str, number: int) -> dict[str, object]:
    start = number * CHUNK_BYTES
    name = f"pieces/{key}.{uuid4().hex}"
    return {
        "key": key,
        "start": start,
        "end": start + CHUNK_BYTES,
        "name": name,
        "crc32c": "AAAAAA==",
    }


def _measure_chunks(
    lab: Lab, number: int, server: BenchServer, postgresql: Postgresql, upload: _Begun
) -> None:
    count = lab.pick(CHUNKS, QUICK_CHUNKS)
    with Connection(server.port) as connection:
        upload.send(connection, 1)
        before = _statements(postgresql)
        with Meter(server.processes()) as meter:
            upload.send(connection, count)
            sample = meter.sample(_after(upload.pieces), number, count * CHUNK_BYTES)
        statements = _statements(postgresql) - before
    lab.keep(sample)
    rate = replace(
        sample, case=f"statements {_after(upload.pieces)}", cpu_seconds=statements / count
    )
    lab.samples.append(rate)


def _statements(postgresql: Postgresql) -> int:
    return len(STATEMENT.findall((postgresql.folder / "log").read_text(errors="replace")))


def _after(pieces: int) -> str:
    return f"after {pieces} pieces"


def _milliseconds_a_chunk(samples: Sequence[Sample]) -> list[float]:
    return [(one.cpu_seconds or 0) * 1000 / (one.byte_count / CHUNK_BYTES) for one in samples]


def _piece_table(lab: Lab) -> Table:
    base = _milliseconds_a_chunk(lab.of(_after(PIECES[0])))
    rows: list[tuple[str, ...]] = []
    for pieces in PIECES:
        costs = _milliseconds_a_chunk(lab.of(_after(pieces)))
        statements = [one.cpu_seconds or 0 for one in lab.of(f"statements {_after(pieces)}")]
        rows.append((str(pieces), spread(costs, 1), ratio(costs, base), spread(statements, 1)))
    columns = ("pieces before", "CPU ms a chunk", "of the first", "statements a chunk")
    note = (
        "CPU of the node for a chunk of 20 MiB, on PostgreSQL and Garage. Statements: those that "
        "name the tables of uploads or of the bucket, in PostgreSQL's log; copies of pieces into "
        "parts are in both."
    )
    return Table("A chunk late in an upload", columns, rows, (note,))


def _targets(lab: Lab) -> Table:
    first, last = (
        _milliseconds_a_chunk(lab.of(_after(count))) for count in (PIECES[0], PIECES[-1])
    )
    what = f"chunk after {PIECES[-1]}: CPU, of that after {PIECES[0]}"
    return target_table([Target(what=what, measured=paired_ratio(last, first), at_most=ALLOWED)])


def draw(lab: Lab) -> Plot:
    """The cost of a chunk after so many others."""
    cases = lab.cases("after ")
    panels = [panel_of("CPU ms a chunk", cases, _milliseconds_a_chunk, ours=cases, digits=1)]
    return Plot("Many pieces in a bucket", tuple(panels))


BENCHMARK = Benchmark(
    name="bucket_pieces",
    summary="a chunk late in a large file in a bucket",
    run=run,
    draw=draw,
    needed_bytes=2 * GB,
    rounds=3,
    seconds=200,
    quick_seconds=2,
)
