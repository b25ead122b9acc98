"""Whether a chunk costs the same whatever came before it, and whatever comes beside it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from threading import Barrier
from urllib.parse import urlencode

from bench.lib.client import Connection, FileSlice
from bench.lib.harness import Benchmark, BenchServer, Lab
from bench.lib.meter import Meter
from bench.lib.parallel import in_threads
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, costs_of, paired_ratio, rates_of, spread
from bench.lib.uploading import upload_raw

SMALL_CHUNK_BYTES = 64 * 1024
CHUNKS = 10_000
QUICK_CHUNKS = 300
FILES = 1000
QUICK_FILES = 40
FILE_BYTES = 4 * 1024 * 1024
UPLOADS = (1, 10, 100, 1000)
WARM_UP_CLIENTS, WARM_UP_FILES = 8, 10
TENTHS = {"first": 0, "middle": 5, "last": 9}
"""Which tenths of an upload are measured."""

ALLOWED = 1.2
"""What a later tenth, or many at once, may cost as a multiple of the first, or of one."""


@dataclass(frozen=True, slots=True)
class Order:
    """In which order a client sends the chunks of a file."""

    name: str
    of: Callable[[int], Sequence[int]]


def _two_streams(count: int) -> list[int]:
    half = count // 2
    pairs = zip_longest(range(half), range(half, count))
    return [index for index in chain.from_iterable(pairs) if index is not None]


def _with_gaps(count: int) -> list[int]:
    return [*range(0, count, 2), *range(1, count, 2)]


ORDERS = [
    Order("in order", range),
    Order("backwards", lambda count: range(count - 1, -1, -1)),
    Order("two streams", _two_streams),
    Order("every second one, then the others", _with_gaps),
]


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    count = lab.pick(CHUNKS, QUICK_CHUNKS)
    small = lab.source(SMALL_CHUNK_BYTES, "small")
    large = lab.source(FILE_BYTES, "large")
    files = lab.pick(FILES, QUICK_FILES)
    uploads = [number for number in UPLOADS if number <= files]
    turns = [partial(_measure_order, order=order, source=small, count=count) for order in ORDERS]
    turns += [partial(_measure_at_once, at_once=at_once, source=large) for at_once in uploads]
    for number in lab.rounds():
        for turn in lab.in_time(turns):
            with lab.server() as server:
                _warm_up(server, small)
                turn(lab, number, server)
    return [_order_table(lab, count), _at_once_table(lab, uploads)]


def _warm_up(server: BenchServer, source: Path) -> None:
    """Keep what happens once in a server's life (load, compile, connect) out of the figures."""

    def upload(_: int) -> None:
        for _file in range(WARM_UP_FILES):
            upload_raw(server.port, source, SMALL_CHUNK_BYTES)

    in_threads(WARM_UP_CLIENTS, upload)


def _measure_order(
    lab: Lab, number: int, server: BenchServer, *, order: Order, source: Path, count: int
) -> None:
    """One upload; a sample for each tenth in `TENTHS`."""
    indexes, key = order.of(count), str(uuid.uuid4())
    with Connection(server.port) as connection:
        _send(connection, source, key, indexes[:1], count)  # What happens once is in no tenth.
        for tenth in range(10):
            begin, end = max(1, tenth * count // 10), (tenth + 1) * count // 10
            with Meter(server.processes()) as meter:
                _send(connection, source, key, indexes[begin:end], count)
                names = [name for name, place in TENTHS.items() if place == tenth]
                for name in names:
                    byte_count = (end - begin) * SMALL_CHUNK_BYTES
                    lab.keep(meter.sample(f"{order.name}, {name}", number, byte_count))


def _send(
    connection: Connection, source: Path, key: str, indexes: Sequence[int], count: int
) -> None:
    body = FileSlice(source, 0, SMALL_CHUNK_BYTES)
    for index in indexes:
        fields = {
            "dzuuid": key,
            "dzchunkindex": index,
            "dztotalfilesize": count * SMALL_CHUNK_BYTES,
            "dzchunksize": SMALL_CHUNK_BYTES,
            "dztotalchunkcount": count,
            "dzchunkbyteoffset": index * SMALL_CHUNK_BYTES,
            "filename": "flat.mp4",
        }
        path = f"/upload?{urlencode(fields)}"
        connection.post(path, "application/octet-stream", body, around=(b"", b""))


def _measure_at_once(
    lab: Lab, number: int, server: BenchServer, *, at_once: int, source: Path
) -> None:
    """The same number of files, so many of them at once."""
    files, start = lab.pick(FILES, QUICK_FILES), Barrier(at_once)

    def upload(_: int) -> None:
        start.wait()
        for _file in range(files // at_once):
            upload_raw(server.port, source, FILE_BYTES)

    with Meter(server.processes()) as meter:
        in_threads(at_once, upload)
        lab.keep(meter.sample(_at_once_name(at_once), number, files * FILE_BYTES))


def _at_once_name(at_once: int) -> str:
    return f"{at_once} at once"


def _milliseconds_a_chunk(samples: Sequence[Sample]) -> list[float]:
    return [
        (sample.cpu_seconds or 0) * 1000 / (sample.byte_count / SMALL_CHUNK_BYTES)
        for sample in samples
    ]


def _verdict(values: Sequence[float], base: Sequence[float]) -> tuple[str, str]:
    found = paired_ratio(values, base)
    if found is None:
        return "-", "-"
    return f"{found:.2f}", "yes" if found <= ALLOWED else "no"


def _order_table(lab: Lab, count: int) -> Table:
    rows: list[tuple[str, ...]] = []
    for order in ORDERS:
        tenths = [_milliseconds_a_chunk(lab.of(f"{order.name}, {name}")) for name in TENTHS]
        cells = (spread(values, 2) for values in tenths)
        dearest = [max(later) for later in zip(*tenths[1:], strict=True)]
        rows.append((order.name, *cells, *_verdict(dearest, tenths[0])))
    columns = ("order", *(f"{name} tenth" for name in TENTHS), "later of first", "within 1.2")
    notes = (
        f"CPU of the server in milliseconds a chunk: one upload of {count} chunks of 64 KiB, raw, "
        "over one connection, each on the disk before it is acknowledged.",
    )
    return Table("One upload of many small chunks", columns, rows, notes)


def _at_once_table(lab: Lab, uploads: Sequence[int]) -> Table:
    base = costs_of(lab.of(_at_once_name(uploads[0])))
    rows: list[tuple[str, ...]] = []
    for at_once in uploads:
        samples = lab.of(_at_once_name(at_once))
        verdict = _verdict(costs_of(samples), base)
        rates, costs = spread(rates_of(samples)), spread(costs_of(samples), 2)
        rows.append((str(at_once), rates, costs, *verdict))
    columns = ("uploads at once", "MB/s", "CPU s/GB", "of one", "within 1.2")
    notes = (
        f"{lab.pick(FILES, QUICK_FILES)} files of 4 MiB in all, each one chunk over a connection "
        "of its own, at full speed, on the disk before the answer.",
    )
    return Table("Many uploads at once", columns, rows, notes)


def draw(lab: Lab) -> Plot:
    """The cost of a chunk in each order, early and late, and of uploads at once."""
    at_once = {_at_once_name(number) for number in UPLOADS}
    orders = {name: found for name, found in lab.cases().items() if name not in at_once}
    others = {name: found for name, found in lab.cases().items() if name in at_once}
    panels = [
        panel_of("CPU ms a chunk of 64 KiB", orders, _milliseconds_a_chunk, ours=orders, digits=2),
        panel_of("Files of 4 MiB: CPU s/GB", others, costs_of, ours=others, digits=2),
    ]
    return Plot("A chunk's cost late in an upload, and beside others", tuple(panels))


BENCHMARK = Benchmark(
    name="flat",
    summary="a chunk's cost late in an upload, in other orders, beside others",
    run=run,
    draw=draw,
    needed_bytes=5 * GB,
    seconds=700,
    rounds=2,
    quick_seconds=7,
)
