"""Nodes that share a bucket and PostgreSQL: uploads to one, two and three, and ways to download."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from urllib.parse import urlsplit

import requests

from bench.lib.client import Connection
from bench.lib.harness import Benchmark, BenchServer, Lab, NotRunnable
from bench.lib.meter import Meter, await_idle
from bench.lib.parallel import in_processes
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, costs_of, paired_ratio, rates_of, ratio, spread
from bench.lib.uploading import CHUNK_BYTES, upload_raw
from bench.peers.buckets import running_garage, running_postgresql
from bench.peers.uploads import await_digests, delete_videos
from scripts.fleet.nginx import find_nginx, fleet_site, nginx
from scripts.fleet.programs import free_port

NODES, QUICK_NODES = (1, 2, 3), (1,)
UPLOADS = 8
CHUNKS, QUICK_CHUNKS = 3, 1
"""Of each upload."""

FILE_BYTES, QUICK_FILE_BYTES = 512 * 1024 * 1024, 60 * 1024 * 1024
THROUGH_NODE, BY_NGINX, REDIRECTED = "through the node", "by nginx", "redirected"
WAYS: Mapping[str, Mapping[str, str]] = {
    THROUGH_NODE: {},
    BY_NGINX: {"SLUICE_ACCEL_REDIRECT": "/protected/"},
    REDIRECTED: {"SLUICE_DIRECT_DOWNLOADS": "1"},
}

ALLOWED = 1.2
"""What a byte may cost on three nodes, as a multiple of one."""

UPLOAD_NOTE = (
    "Eight uploads at once, raw, in chunks of 20 MiB, through nginx; CPU of all nodes, without "
    "nginx and Garage. All run on the same cores: more nodes cannot take more bytes here, and "
    "should not make a byte cost more."
)
DOWNLOAD_NOTE = "One client, the whole file; CPU of the node alone."

Settings = Mapping[str, str]


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` if a server is missing."""
    if find_nginx() is None:
        raise NotRunnable("nginx is not installed")
    counts = QUICK_NODES if lab.is_quick else NODES
    with running_garage(lab) as store, running_postgresql() as postgresql:
        settings = {
            "SLUICE_DATABASE_URL": postgresql.create("sluice"),
            **store.access.settings("fleet"),
        }
        for number in lab.rounds():
            for count in lab.in_time(counts[:: -1 if number % 2 else 1]):
                _measure_uploads(lab, number, count, settings)
            _measure_downloads(lab, number, settings)
    return [_upload_table(lab), _download_table(lab), _targets(lab)]


def _measure_uploads(lab: Lab, number: int, count: int, settings: Settings) -> None:
    length = lab.pick(CHUNKS, QUICK_CHUNKS) * CHUNK_BYTES
    source = lab.source(length, "chunks")
    behind = {**settings, "SLUICE_ACCEL_REDIRECT": "/protected/"}
    with ExitStack() as stack:
        nodes = [stack.enter_context(lab.server(**behind)) for _ in range(count)]
        port = stack.enter_context(_nginx(lab, nodes))

        def upload(_: int) -> str:
            return upload_raw(port, source, length)

        for _ in ("warm-up", "sample"):
            processes = [process for node in nodes for process in node.processes()]
            for node in nodes:
                await_idle(node.processes)
            with in_processes(UPLOADS, upload) as run_clients, Meter(processes) as meter:
                ids = run_clients()
                sample = meter.sample(f"{count} nodes", number, UPLOADS * length)
            await_digests(nodes[0].port, ids)
            delete_videos(nodes[0], ids)
        lab.keep(sample)


@contextmanager
def _nginx(lab: Lab, nodes: Sequence[BenchServer]) -> Iterator[int]:
    port = free_port()
    with lab.scratch("nginx") as folder:
        site = fleet_site(port, [node.port for node in nodes])
        program = nginx(str(find_nginx()), folder / "front", site, port)
        program.start()
        try:
            yield port
        finally:
            program.stop()


def _measure_downloads(lab: Lab, number: int, settings: Settings) -> None:
    """A file of one node, from nodes of the same fleet."""
    length = lab.pick(FILE_BYTES, QUICK_FILE_BYTES)
    with lab.server(**settings) as uploader:
        video = upload_raw(uploader.port, lab.source(length, "film"), length)
        await_digests(uploader.port, [video])
        for way in lab.in_time(WAYS):
            with lab.server(**settings, **WAYS[way]) as node, _nginx(lab, [node]) as front:
                fetch = partial(_fetch, way, node, front, f"/media/{video}")
                fetch()  # Connects, imports.
                await_idle(node.processes)
                with Meter(node.processes()) as meter:
                    fetch()
                    lab.keep(meter.sample(way, number, length))
        delete_videos(uploader, [video])


def _fetch(way: str, node: BenchServer, front: int, path: str) -> None:
    if way == REDIRECTED:
        asked = f"{node.url}{path}?download"
        answer = requests.get(asked, allow_redirects=False, timeout=60)
        url = urlsplit(answer.headers["Location"])
        _get(url.port or 80, f"{url.path}?{url.query}", url.netloc)
    else:
        _get(front if way == BY_NGINX else node.port, path)


def _get(port: int, path: str, host: str = "localhost") -> None:
    with Connection(port) as connection:
        connection.get(path, host=host)


def _upload_table(lab: Lab) -> Table:
    names = [name for name in lab.cases() if name.endswith("nodes")]
    one = lab.of("1 nodes")
    rows: list[tuple[str, ...]] = [
        (
            name.partition(" ")[0],
            spread(rates_of(lab.of(name))),
            ratio(rates_of(lab.of(name)), rates_of(one)),
            spread(costs_of(lab.of(name)), 2),
            ratio(costs_of(lab.of(name)), costs_of(one)),
            spread([sample.peak_mib / int(name.partition(" ")[0]) for sample in lab.of(name)]),
        )
        for name in sorted(names)
    ]
    columns = ("nodes", "MB/s", "of one", "CPU s/GB", "of one", "peak MiB above idle, each")
    return Table("Uploads to several nodes", columns, rows, (UPLOAD_NOTE,))


def _download_table(lab: Lab) -> Table:
    rows: list[tuple[str, ...]] = [
        (way, spread(rates_of(lab.of(way))), spread(costs_of(lab.of(way)), 2)) for way in WAYS
    ]
    length = lab.pick(FILE_BYTES, QUICK_FILE_BYTES) // 1024**2
    title = f"Downloads of {length} MiB from the bucket"
    return Table(title, ("way", "MB/s", "CPU s/GB"), rows, (DOWNLOAD_NOTE,))


def _targets(lab: Lab) -> Table:
    measured = paired_ratio(costs_of(lab.of("3 nodes")), costs_of(lab.of("1 nodes")))
    return target_table([Target(what="3 nodes: CPU, of 1", measured=measured, at_most=ALLOWED)])


def draw(lab: Lab) -> Plot:
    """Rates and costs of both."""
    uploads = {name: found for name, found in lab.cases().items() if name.endswith("nodes")}
    downloads = {name: found for name, found in lab.cases().items() if name not in uploads}
    panels = []
    for what, cases in (("Uploads", uploads), ("Downloads", downloads)):
        panels += [
            panel_of(f"{what}: MB/s", cases, rates_of, ours=cases),
            panel_of(f"{what}: CPU s/GB", cases, costs_of, ours=cases, digits=2),
        ]
    return Plot("Nodes that share a bucket", tuple(panels))


BENCHMARK = Benchmark(
    name="fleet",
    summary="one, two and three nodes with a bucket, and ways to download",
    run=run,
    draw=draw,
    needed_bytes=6 * GB,
    rounds=3,
    seconds=400,
    quick_seconds=1,
)
