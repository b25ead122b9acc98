"""Uploads in 20 MiB chunks: one large file, and eight at once, beside `dd`, C and other servers.

A sample takes a second, and a shared machine may be half as fast the next minute: so servers are
kept, what is compared lies seconds to half a minute apart, and there are several rounds of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import await_idle
from bench.lib.parallel import in_processes
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, costs_of, paired_ratio, rates_of, ratio, spread
from bench.peers import uploads as who
from bench.peers.disk import DD, DD_EACH_BLOCK_SYNCED, DD_SYNCED, measure_dd
from bench.peers.process import build
from bench.peers.uploads import Contender, Job, Servers

COLUMNS = (
    "case",
    "MB/s",
    "of C",
    "of tusd",
    "of dd",
    "CPU s/GB",
    "of C",
    "peak memory above idle, MiB",
)
NOTES = (
    "Ratios are medians of the ratios within a round. Synced: each chunk is on the disk before it "
    "is acknowledged, beside the C server that does the same and beside `dd conv=fdatasync`, which "
    "waits once. CPU: the processes that answer requests. Memory: the peak of all processes, "
    "resident, above what the same server had when it was fresh.",
)


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    if not lab.is_quick:
        build()
    found, who_note = who.contenders(is_quick=lab.is_quick)
    one, eight = jobs = _jobs(lab)
    source = lab.source(one.length)
    servers = Servers(lab, source)
    for number in lab.rounds():
        turns = []
        for job in jobs:
            turns.append(partial(measure_dd, lab, number, job.name, one.length))
            turns += [partial(_measure, servers, number, job, contender) for contender in found]
        # There and back, so that no case always comes first, or always follows the same other.
        for turn in lab.in_time(turns[:: -1 if number % 2 else 1]):
            turn()
    return [
        table(lab, one, found),
        table(lab, eight, found, (*NOTES, _digest_note(lab), _rounds_note(lab), who_note)),
        targets(lab, one, eight),
    ]


def _jobs(lab: Lab) -> list[Job]:
    total = lab.pick(1024, 160) * 1024**2
    return [Job(1, total), Job(8, total // 8)]


def _measure(servers: Servers, number: int, job: Job, contender: Contender) -> None:
    lab, server = servers.lab, servers.of(contender, job.name)
    lab.settle()
    await_idle(server.processes)

    def upload(_: int) -> str:
        return contender.upload(server.port, servers.source, job.length)

    with (
        in_processes(job.count, upload) as run_clients,
        servers.meter(contender, job.name) as meter,
    ):
        paths = run_clients()
        case = f"{job.name}, {contender.name}"
        sample = meter.sample(case, number, job.count * job.length)
        if contender.peer is None:
            who.await_digests(server.port, paths)
        background = meter.background_cpu_seconds
    lab.keep(replace(sample, background_cpu_seconds=background, peak_bytes=meter.peak_bytes))
    contender.clear(server, paths)


def table(lab: Lab, job: Job, found: Sequence[Contender], notes: tuple[str, ...] = ()) -> Table:
    """All figures for a job, and their ratios."""
    rows = [
        (name, spread(rates_of(lab.of(f"{job.name}, {name}"))), *["-"] * (len(COLUMNS) - 2))
        for name in (DD, DD_SYNCED, DD_EACH_BLOCK_SYNCED)
    ]
    rows += [_row(lab, job, contender) for contender in found]
    return Table(f"{job.name} in chunks of 20 MiB", COLUMNS, rows, notes)


def _row(lab: Lab, job: Job, contender: Contender) -> tuple[str, ...]:
    samples = lab.of(f"{job.name}, {contender.name}")
    limit = who.LIMIT_SYNCED if contender.is_synced else who.LIMIT
    best = lab.of(f"{job.name}, {limit.name}")
    rates = rates_of(samples)
    return (
        contender.name,
        spread(rates),
        ratio(rates, rates_of(best)),
        ratio(rates, rates_of(lab.of(f"{job.name}, {who.TUSD.name}"))),
        ratio(rates, rates_of(lab.of(f"{job.name}, {DD_SYNCED if contender.is_synced else DD}"))),
        spread(costs_of(samples), 2),
        ratio(costs_of(samples), costs_of(best)),
        spread([sample.peak_mib for sample in samples]),
    )


def targets(lab: Lab, one: Job, eight: Job) -> Table:
    """The targets, and what was reached."""
    return target_table([*_targets_of_one(lab, one), *_targets_of_eight(lab, eight)])


def _targets_of_one(lab: Lab, job: Job) -> list[Target]:
    def rate(ours: str, other: str) -> float | None:
        return paired_ratio(rates_of(lab.of(f"{job.name}, {ours}")), rates_of(lab.of(other)))

    raw, raw_cost = f"{job.name}, {who.RAW}", costs_of(lab.of(f"{job.name}, {who.RAW}"))
    limit = f"{job.name}, {who.LIMIT.name}"
    form_cost = costs_of(lab.of(f"{job.name}, {who.FORM}"))
    tusd, rustus = (f"{job.name}, {peer.name}" for peer in (who.TUSD, who.RUSTUS))
    nginx, dd = f"{job.name}, {who.BEST_NGINX.name}", f"{job.name}, {DD_SYNCED}"
    return [
        Target(what=f"{raw}: rate, of C", measured=rate(who.RAW, limit), at_least=0.85),
        Target(
            what=f"{raw}: CPU, of C",
            measured=paired_ratio(raw_cost, costs_of(lab.of(limit))),
            at_most=1.25,
        ),
        Target(what=f"{raw}: rate, of nginx's best", measured=rate(who.RAW, nginx), at_least=1),
        Target(
            what=f"{job.name}, {who.TUS}: rate, of tusd", measured=rate(who.TUS, tusd), at_least=3
        ),
        Target(
            what=f"{job.name}, {who.TUS}: rate, of rustus",
            measured=rate(who.TUS, rustus),
            at_least=1.7,
        ),
        Target(
            what=f"{raw}, synced: rate, of {DD_SYNCED}",
            measured=rate(who.RAW_SYNCED, dd),
            at_least=0.8,
        ),
        Target(
            what=f"{job.name}, {who.FORM}: CPU, of raw",
            measured=paired_ratio(form_cost, raw_cost),
            at_most=1.05,
        ),
    ]


def _targets_of_eight(lab: Lab, job: Job) -> list[Target]:
    raw = f"{job.name}, {who.RAW}"
    samples, limit = lab.of(raw), lab.of(f"{job.name}, {who.LIMIT.name}")
    memory = max((sample.peak_mib for sample in samples), default=None)
    return [
        Target(
            what=f"{raw}: rate, of C",
            measured=paired_ratio(rates_of(samples), rates_of(limit)),
            at_least=0.9,
        ),
        Target(
            what=f"{raw}: CPU, of C",
            measured=paired_ratio(costs_of(samples), costs_of(limit)),
            at_most=1.4,
        ),
        Target(what=f"{raw}: MiB of memory above idle", measured=memory, at_most=64),
    ]


def _digest_note(lab: Lab) -> str:
    samples = lab.of(f"{_jobs(lab)[0].name}, {who.RAW_SYNCED}")
    seconds = spread([(s.background_cpu_seconds or 0) / s.byte_count * GB for s in samples], 2)
    return (
        f"The SHA-256 of a finished file takes {seconds} CPU s/GB more, afterwards, in a process "
        "of its own at low priority; it is not in the table."
    )


def _rounds_note(lab: Lab) -> str:
    count = len({sample.round for sample in lab.samples})
    return f"Rounds: {count}, every second one backwards."


def draw(lab: Lab) -> Plot:
    """Rates and costs of all."""
    panels = []
    for job in _jobs(lab):
        cases = lab.cases(f"{job.name}, ")
        servers = {name: found for name, found in cases.items() if found[0].cpu_seconds is not None}
        ours = [name for name in cases if "Sluice" in name]
        panels += [
            panel_of(f"{job.name}: MB/s", cases, rates_of, ours=ours),
            panel_of(f"{job.name}: CPU s/GB", servers, costs_of, ours=ours, digits=2),
        ]
    return Plot("Uploads in chunks of 20 MiB", tuple(panels))


BENCHMARK = Benchmark(
    name="upload",
    summary="one upload of 1 GiB, and eight of 128 MiB at once, beside other servers",
    run=run,
    draw=draw,
    needed_bytes=4 * GB,
    rounds=5,
    seconds=900,
    quick_seconds=9,
)
