"""Downloads of 1 GB: whole and by ranges, one client and eight, beside nginx, FTP and others."""

from __future__ import annotations

from statistics import median

from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, MB, costs_of, paired_ratio, rates_of, ratio, spread
from bench.peers.downloads import AT_ONCE, HTTP_JOBS, NGINX, OURS, STEP_BYTES, Files, file_servers
from bench.peers.process import build

COST_LIMIT = 1.15
"""Most CPU time per byte, as a multiple of nginx with sendfile."""

COLUMNS = ("server", "MB/s", "of nginx", "CPU s/GB", "of nginx", "peak memory above idle, MiB")
NOTES = (
    "The file is in the page cache. Each client is a process, and has the kernel drop what comes. "
    "CPU and (resident) memory are those of all processes of the server; ratios are medians of the "
    "ratios within a round. FTP (pyftpdlib, one process) can be told where to begin but not where "
    "to end: no ranges.",
)


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    if not lab.is_quick:
        build()
    length = lab.pick(1000, 120) * MB
    files = Files(lab.source(length, "large"), lab.source(length // AT_ONCE, "small"))
    found, who_note = file_servers()
    for number in lab.rounds():
        for server in lab.in_time(found[:: -1 if number % 2 else 1]):
            with server.open(lab, files) as served:
                for name, job in server.jobs.items():
                    # Idle again; what an earlier job left in the server's memory counts as idle.
                    processes = served.server.processes()
                    with job.clients(served) as run_clients, Meter(processes) as meter:
                        run_clients()
                        lab.keep(meter.sample(f"{name}: {server.name}", number, length))
    tables = [_table(lab, name, length) for name in HTTP_JOBS]
    return [*tables, targets(lab, (*NOTES, range_note(lab), who_note))]


def _table(lab: Lab, job: str, length: int) -> Table:
    rows = [_row(lab, job, server) for server in lab.cases(f"{job}: ")]
    return Table(f"{length // MB} MB, {job}", COLUMNS, rows)


def _row(lab: Lab, job: str, server: str) -> tuple[str, ...]:
    samples, nginx = lab.of(f"{job}: {server}"), lab.of(f"{job}: {NGINX}")
    return (
        server,
        spread(rates_of(samples)),
        ratio(rates_of(samples), rates_of(nginx)),
        spread(costs_of(samples), 2),
        ratio(costs_of(samples), costs_of(nginx)),
        spread([sample.peak_mib for sample in samples], 1),
    )


def range_note(lab: Lab) -> str:
    """What a request costs beside its bytes: the difference between ranges and a whole file."""
    whole, _, ranges, _ = HTTP_JOBS
    costs = []
    for server in lab.cases(f"{ranges}: "):
        pairs = zip(lab.of(f"{ranges}: {server}"), lab.of(f"{whole}: {server}"), strict=False)
        seconds = [one.cpu_seconds_per_gb - other.cpu_seconds_per_gb for one, other in pairs]
        costs.append(f"{server} {median(seconds) * STEP_BYTES / GB * 1000:.1f} ms")
    return f"CPU of one range beside its bytes, by the difference: {', '.join(costs)}."


def targets(lab: Lab, notes: tuple[str, ...] = ()) -> Table:
    """The targets, and what was reached."""
    return target_table([_target(lab, name) for name in HTTP_JOBS], notes)


def _target(lab: Lab, job: str) -> Target:
    ours, nginx = (costs_of(lab.of(f"{job}: {server}")) for server in (OURS, NGINX))
    measured = paired_ratio(ours, nginx)
    return Target(what=f"{job}: CPU, of nginx", measured=measured, at_most=COST_LIMIT)


def draw(lab: Lab) -> Plot:
    """Rates and costs of all servers."""
    panels = []
    for job in HTTP_JOBS:
        cases = lab.cases(f"{job}: ")
        panels += [
            panel_of(f"{job}: MB/s", cases, rates_of, ours=[OURS]),
            panel_of(f"{job}: CPU s/GB", cases, costs_of, ours=[OURS], digits=2),
        ]
    return Plot("Downloads", tuple(panels))


BENCHMARK = Benchmark(
    name="download",
    summary="1 GB whole and by ranges, beside other servers",
    run=run,
    draw=draw,
    needed_bytes=4 * GB,
    rounds=5,
    seconds=300,
    quick_seconds=8,
)
