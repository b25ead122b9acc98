"""Uploads into a bucket in 20 MiB chunks: ours through the node and direct, beside other servers.

All use one Garage, on this machine. It stores equal blocks once and the files repeat themselves, so
that it hardly writes to the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import psutil

from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import await_idle, cpu_seconds_of
from bench.lib.parallel import in_processes
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, Sample, costs_of, paired_ratio, rates_of, ratio, spread
from bench.lib.uploading import CHUNK_BYTES
from bench.peers import buckets as who
from bench.peers.process import build
from bench.peers.uploads import Contender, Job, Servers, await_digests
from scripts.fleet.s3_servers import S3Server

TITLE = "Uploads into a bucket, in chunks of 20 MiB"

COLUMNS = (
    "case",
    "MB/s",
    "CPU s/GB",
    "of tusd",
    "digests, CPU s/GB",
    "Garage's CPU s/GB",
    "peak memory above idle, MiB",
)
NOTES = (
    "Plain HTTP on loopback; client, server and Garage share the cores. CPU and memory are the "
    "server's; what Garage used during the upload has a column of its own. "
    "Nothing waits for the disk. Digests: what the background worker uses, also after the upload, "
    "to read finished files once for their SHA-256, at low priority; those of direct uploads are "
    "not read. Its memory counts towards the peak; its CPU time is only in this column. Ratios are "
    "medians of the ratios within a round; direct is what it costs to sign URLs and count cells, "
    "per GB that others carry.",
)

MOST_CPU = 0.7
"""CPU seconds per GB that pass through the node."""

OF_TUSD = 0.5
"""The same, as a multiple of tusd's."""


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables; raises `NotRunnable` without Garage."""
    if not lab.is_quick:
        build(["tusd"])
    store = lab.servers.enter_context(who.running_garage(lab))
    found, who_note = who.contenders(store.access, is_quick=lab.is_quick)
    jobs = _jobs(lab)
    warm_up_bytes = lab.pick(2, 1) * CHUNK_BYTES
    servers = Servers(lab, lab.source(jobs[0].length), warm_up_bytes=warm_up_bytes)
    for number in lab.rounds():
        turns = [
            partial(_measure, servers, store, number, job, contender)
            for job in jobs
            for contender in found
        ]
        for turn in lab.in_time(turns[:: -1 if number % 2 else 1]):
            turn()
    one, eight = (_table(lab, job, found) for job in jobs)
    return [one, replace(eight, notes=(*NOTES, who_note)), targets(lab)]


def _jobs(lab: Lab) -> list[Job]:
    total = lab.pick(24, 8) * CHUNK_BYTES
    return [Job(1, total), Job(8, total // 8)]


def _measure(
    servers: Servers, store: S3Server, number: int, job: Job, contender: Contender
) -> None:
    lab, server = servers.lab, servers.of(contender, job.name)
    lab.settle()
    await_idle(server.processes)
    keeper = [psutil.Process(store.program.pid)]
    await_idle(lambda: keeper)

    def upload(_: int) -> str:
        return contender.upload(server.port, servers.source, job.length)

    with in_processes(job.count, upload) as run_clients:
        before = cpu_seconds_of(keeper)
        with servers.meter(contender, job.name) as meter:
            paths = run_clients()
            sample = meter.sample(f"{job.name}, {contender.name}", number, job.count * job.length)
            used = cpu_seconds_of(keeper) - before
            if contender.peer is None:
                await_digests(server.port, paths)
            background = meter.background_cpu_seconds
    sample = replace(sample, background_cpu_seconds=background, peak_bytes=meter.peak_bytes)
    lab.keep(replace(sample, store_cpu_seconds=used))
    contender.clear(server, paths)


def _table(lab: Lab, job: Job, found: Sequence[Contender]) -> Table:
    rows = [
        _row(contender.name, _samples(lab, job, contender.name), lab, job) for contender in found
    ]
    return Table(f"{job.name} in chunks of 20 MiB", COLUMNS, rows)


def _row(name: str, samples: Sequence[Sample], lab: Lab, job: Job) -> tuple[str, ...]:
    has_store, is_ours = name not in who.LOCAL, name.startswith("Sluice")
    return (
        name,
        spread(rates_of(samples)),
        spread(costs_of(samples), 2),
        ratio(costs_of(samples), costs_of(_samples(lab, job, who.TUSD))),
        spread(_digest_costs_of(samples), 2) if is_ours else "-",
        spread(_store_costs_of(samples), 2) if has_store else "-",
        spread([sample.peak_mib for sample in samples]),
    )


def _samples(lab: Lab, job: Job, name: str) -> list[Sample]:
    return lab.of(f"{job.name}, {name}")


def _store_costs_of(samples: Sequence[Sample]) -> list[float]:
    return [(one.store_cpu_seconds or 0) / one.byte_count * GB for one in samples]


def _digest_costs_of(samples: Sequence[Sample]) -> list[float]:
    return [(one.background_cpu_seconds or 0) / one.byte_count * GB for one in samples]


def targets(lab: Lab) -> Table:
    """The targets, and what was reached."""
    return target_table([target for job in _jobs(lab) for target in _targets_of(lab, job)])


def _targets_of(lab: Lab, job: Job) -> list[Target]:
    ours = costs_of(_samples(lab, job, who.NODE_RAW))
    of_tusd = paired_ratio(ours, costs_of(_samples(lab, job, who.TUSD)))
    return [
        Target(
            what=f"{job.name}, {who.NODE_RAW}: CPU s/GB",
            measured=median(ours) if ours else None,
            at_most=MOST_CPU,
        ),
        Target(what=f"{job.name}, {who.NODE_RAW}: CPU, of tusd", measured=of_tusd, at_most=OF_TUSD),
    ]


def draw(lab: Lab) -> Plot:
    """Rates and costs of all."""
    panels = []
    for job in _jobs(lab):
        cases = lab.cases(f"{job.name}, ")
        ours = [name for name in cases if "Sluice" in name]
        panels += [
            panel_of(f"{job.name}: MB/s", cases, rates_of, ours=ours),
            panel_of(f"{job.name}: CPU s/GB", cases, costs_of, ours=ours, digits=2),
        ]
    return Plot(TITLE, tuple(panels))


BENCHMARK = Benchmark(
    name="bucket",
    summary="uploads into a bucket, through the node and direct, beside other servers",
    run=run,
    draw=draw,
    needed_bytes=6 * GB,
    rounds=5,
    seconds=900,
    quick_seconds=4,
)
