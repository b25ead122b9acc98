"""What a request costs beside its bytes: gunicorn alone, with Flask, with sendfile, and ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.lib.client import Connection, FileSlice
from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, ratio, spread
from bench.lib.uploading import upload_raw
from bench.peers.bare_wsgi import Gunicorn
from bench.peers.process import Served, running
from bench.peers.uploads import await_digests

REQUESTS, QUICK_REQUESTS = 300, 200
STEP_BYTES = 64 * 1024
FILE_BYTES = 200 * STEP_BYTES
TUS = {"Tus-Resumable": "1.0.0"}

HEALTH, RANGE, CHUNK = "/healthz", "a range of 64 KiB", "a tus chunk of 64 KiB"
PAGE = "the page /"
OURS = "Sluice"
PLAIN = Gunicorn("gunicorn", "plain")
FLASK = Gunicorn("gunicorn, Flask", "with_flask()")
SENDFILE = Gunicorn("gunicorn, sendfile", "ranged('{files}')")

COLUMNS = ("request", "server", "CPU ms", "of gunicorn")
NOTES = (
    "CPU of the server's processes, one worker, over one connection, in turn. gunicorn: its "
    "threaded worker and an application of four lines; Flask: the same as a view; sendfile: a "
    "range sent without a look at anything else. Ours beside that: its record, conditions, digest "
    "and access log, metrics, the write and the record of a chunk, the list of videos in the page.",
)


@dataclass(frozen=True, slots=True)
class Site:
    """A server, what can be asked of it, and the path of a file there."""

    name: str
    server: Served
    jobs: dict[str, Callable[[Site, Path, int], None]]
    file: str = "/file"

    def measure(self, number: int, source: Path, count: int) -> Iterator[Sample]:
        """So many requests of each kind; a sample counts requests where others count bytes."""
        for name, job in self.jobs.items():
            with Meter(self.server.processes()) as meter:
                job(self, source, count)
                yield meter.sample(f"{name}: {self.name}", number, count)


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    source, count = lab.source(FILE_BYTES, "file"), lab.pick(REQUESTS, QUICK_REQUESTS)
    with _sites(lab, source) as sites:
        for site in sites:  # Loads, compiles, connects.
            for _ in site.measure(-1, source, count):
                pass
        for number in lab.rounds():
            for site in sites[:: -1 if number % 2 else 1]:
                lab.samples += site.measure(number, source, count)
    return [Table("A request beside its bytes", COLUMNS, _rows(lab), NOTES)]


@contextmanager
def _sites(lab: Lab, source: Path) -> Iterator[list[Site]]:
    """All servers at once, so that what is compared is seconds apart."""
    with (
        running(lab, PLAIN) as plain,
        running(lab, FLASK) as flask,
        running(lab, SENDFILE) as sendfile,
        lab.server(SLUICE_WORKERS="1", SLUICE_DURABILITY="none") as ours,
    ):
        shutil.copy(source, sendfile.files)
        video = upload_raw(ours.port, source, FILE_BYTES)
        await_digests(ours.port, [video])
        yield [
            Site(PLAIN.name, plain, {HEALTH: _health}),
            Site(FLASK.name, flask, {HEALTH: _health}),
            Site(SENDFILE.name, sendfile, {RANGE: _ranges}),
            Site(
                OURS,
                ours,
                {HEALTH: _health, RANGE: _ranges, CHUNK: _chunks, PAGE: _pages},
                f"/media/{video}",
            ),
        ]


def _health(site: Site, _source: Path, count: int) -> None:
    with Connection(site.server.port) as connection:
        for _ in range(count):
            connection.get("/healthz")


def _pages(site: Site, _source: Path, count: int) -> None:
    with Connection(site.server.port) as connection:
        for _ in range(count):
            connection.get("/")


def _ranges(site: Site, _source: Path, count: int) -> None:
    with Connection(site.server.port) as connection:
        for number in range(count):
            start = number * STEP_BYTES % FILE_BYTES
            connection.get(site.file, (start, start + STEP_BYTES))


def _chunks(site: Site, source: Path, count: int) -> None:
    with Connection(site.server.port) as connection:
        # One byte stays missing: a complete file would be a row more in the next page.
        headers = {**TUS, "Upload-Length": str(count * STEP_BYTES + 1)}
        created = connection.request("POST /tus/", headers)
        path = urlsplit(created.headers["Location"]).path
        kind = {"Content-Type": "application/offset+octet-stream"}
        for start in range(0, count * STEP_BYTES, STEP_BYTES):
            headers = {**TUS, **kind, "Upload-Offset": str(start)}
            body = FileSlice(source, start % FILE_BYTES, STEP_BYTES)
            connection.request(f"PATCH {path}", headers, body)


def _rows(lab: Lab) -> list[tuple[str, ...]]:
    base = _milliseconds(lab.of(f"{HEALTH}: {PLAIN.name}"))
    rows = []
    for case, samples in lab.cases().items():
        request, _, server = case.partition(": ")
        costs = _milliseconds(samples)
        rows.append((request, server, spread(costs, 2), ratio(costs, base)))
    return sorted(rows, key=lambda row: [HEALTH, RANGE, CHUNK, PAGE].index(row[0]))


def _milliseconds(samples: Sequence[Sample]) -> list[float]:
    """CPU a request."""
    return [(sample.cpu_seconds or 0) * 1000 / sample.byte_count for sample in samples]


def draw(lab: Lab) -> Plot:
    """CPU of each request on each server."""
    cases = lab.cases()
    ours = {name for name in cases if OURS in name}
    panel = panel_of("CPU ms a request", cases, _milliseconds, ours=ours, digits=2)
    return Plot("A request beside its bytes", (panel,))


BENCHMARK = Benchmark(
    name="request_cost",
    summary="CPU of a request beside its bytes, and of the servers below ours",
    run=run,
    draw=draw,
    needed_bytes=GB,
    rounds=15,
    seconds=300,
    quick_seconds=2,
)
