"""What a chunk sent with an API key costs beside one sent to a server without accounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from bench.peers.process import Served
from tests.access.accounts import bearer, make_key

MIB = 1024 * 1024
LARGE_BYTES = 20 * MIB
SIZES = {"a tus chunk of 64 KiB": (64 * 1024, 400), "a tus chunk of 20 MiB": (LARGE_BYTES, 10)}
"""Length of a chunk, and how many of them a sample has."""

QUICK_PART = 10
"""A quick run sends this part of them."""

REQUESTS_PER_MINUTE = 1_000_000
"""More than it sends: requests are counted, as they are by default, and none is refused."""

TUS = {"Tus-Resumable": "1.0.0"}
OPEN, KEY = "without accounts", "with a key"

COLUMNS = ("request", "server", "CPU ms", "of without")
NOTES = (
    "CPU of the server's processes, one worker, over one connection, in turn; durability none. The "
    "key is looked up every two seconds, and remembered in between.",
)


@dataclass(frozen=True, slots=True)
class Site:
    """A server, and what its requests carry."""

    name: str
    server: Served
    headers: dict[str, str]


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    source = lab.source(LARGE_BYTES, "chunk")
    with _sites(lab) as sites:
        for site in sites:  # Loads, compiles, connects.
            _send(site, source, MIB, 10)
        for number in lab.rounds():
            for site in sites[:: -1 if number % 2 else 1]:
                lab.samples += _measure(lab, site, number, source)
    return [Table("A chunk with a key", COLUMNS, list(_rows(lab)), NOTES)]


@contextmanager
def _sites(lab: Lab) -> Iterator[list[Site]]:
    """Both servers at once, so that what is compared is seconds apart."""
    options = {"SLUICE_WORKERS": "1", "SLUICE_DURABILITY": "none"}
    with (
        lab.server(**options, SLUICE_ACCESS="open") as free,
        lab.server(
            **options,
            SLUICE_ACCESS="accounts",
            SLUICE_REQUESTS_PER_MINUTE=str(REQUESTS_PER_MINUTE),
        ) as closed,
    ):
        yield [Site(OPEN, free, {}), Site(KEY, closed, bearer(make_key(closed)))]


def _measure(lab: Lab, site: Site, number: int, source: Path) -> Iterator[Sample]:
    """A sample counts chunks where others count bytes."""
    for name, (length, full) in SIZES.items():
        count = lab.pick(full, full // QUICK_PART)
        with Meter(site.server.processes()) as meter:
            _send(site, source, length, count)
            yield meter.sample(f"{name}: {site.name}", number, count)


def _send(site: Site, source: Path, length: int, count: int) -> None:
    """So many chunks of one upload, which is cancelled then."""
    fields = {**TUS, **site.headers}
    with Connection(site.server.port) as connection:
        created = connection.request(
            "POST /tus/", {**fields, "Upload-Length": str(length * count + 1)}
        )
        path = urlsplit(created.headers["Location"]).path
        fields["Content-Type"] = "application/offset+octet-stream"
        for start in range(0, length * count, length):
            headers = {**fields, "Upload-Offset": str(start)}
            connection.request(f"PATCH {path}", headers, FileSlice(source, 0, length))
        connection.request(f"DELETE {path}", fields)


def _rows(lab: Lab) -> Iterator[tuple[str, ...]]:
    cases = lab.cases()
    for request in SIZES:
        base = _milliseconds(cases[f"{request}: {OPEN}"])
        for server in (OPEN, KEY):
            costs = _milliseconds(cases[f"{request}: {server}"])
            yield request, server, spread(costs, 2), ratio(costs, base)


def _milliseconds(samples: Sequence[Sample]) -> list[float]:
    """CPU a chunk."""
    return [(sample.cpu_seconds or 0) * 1000 / sample.byte_count for sample in samples]


def draw(lab: Lab) -> Plot:
    """CPU of each chunk on each server."""
    cases = lab.cases()
    ours = {name for name in cases if name.endswith(KEY)}
    return Plot(
        "A chunk with a key",
        (panel_of("CPU ms a chunk", cases, _milliseconds, ours=ours, digits=2),),
    )


BENCHMARK = Benchmark(
    name="access",
    summary="CPU of a chunk with an API key, and without accounts",
    run=run,
    draw=draw,
    needed_bytes=GB,
    rounds=15,
    seconds=240,
    quick_seconds=2,
)
