"""One large file over loopback, by what people run: our client, curl to the same server, u2c.

The CPU time is that of the server's whole tree, from the first byte until it is idle again.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace

from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter, await_quiet, tree_cpu_seconds_of
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import GB, MB, Sample, costs_of, ratio, spread
from bench.peers.process import running
from bench.peers.senders import (
    AS_THEY_COME,
    SENDERS,
    Sender,
    client_environment,
    require_stored,
    runnable,
)

CURL = "Sluice, curl -F"
NAMES = (*(name for name in AS_THEY_COME if name != "tusd, Uppy's page"), CURL)
"""Uppy's page ended with an error before it had sent 1 GB."""

MOST_SECONDS = 120
"""A sender that takes longer has failed."""

QUIET_SECONDS = 5.0
"""A server that uses no CPU time for so long is idle; a digest that comes later is not counted."""

COLUMNS = ("server, sender", "seconds", "of curl -F", "server CPU s/GB", "peak memory, MiB")
NOTES = (
    "In turn, each to a fresh server with its own durability and checks. Seconds: a program from "
    "its start to its end, a page from the choice of the file. CPU: all processes of the server "
    "from the first byte until they were "
    f"idle for {QUIET_SECONDS:.0f} s. Memory: above idle. Ratios are medians of those in a round. "
    "The digest of every file on the server's disk was compared.",
)


def run(lab: Lab) -> list[Table]:
    """Measure what is not saved yet, and return the table."""
    lab.resume(BENCHMARK.name)
    senders, note = runnable([sender for sender in SENDERS if sender.name in NAMES])
    for number in lab.rounds():
        due = [sender for sender in senders if lab.is_due(_case(lab, sender), number)]
        # There and back, so that no sender always follows the same other.
        for sender in lab.in_time(due[:: -1 if number % 2 else 1]):
            _measure(lab, number, sender)
    rows = [_row(lab, sender) for sender in senders if lab.of(_case(lab, sender))]
    return [Table(f"{_size(lab) / MB:g} MB over loopback", COLUMNS, rows, (*NOTES, note))]


def _size(lab: Lab) -> int:
    return lab.pick(GB, 100 * MB)


def _case(lab: Lab, sender: Sender) -> str:
    return f"{_size(lab) / MB:g} MB: {sender.name}"


def _measure(lab: Lab, number: int, sender: Sender) -> None:
    source = lab.source(_size(lab), "recording.mp4")
    with running(lab, sender.receiver) as server, lab.scratch("home") as home:
        command = sender.command_for(f"127.0.0.1:{server.port}", source)
        before = tree_cpu_seconds_of(server.processes())
        with Meter(server.processes()) as meter:
            began = time.monotonic()
            sent = subprocess.run(
                command,
                env=client_environment(home),
                capture_output=True,
                timeout=MOST_SECONDS,
                check=True,
            )
            seconds = float(sent.stdout) if sender.is_page else time.monotonic() - began
            await_quiet(server.processes, QUIET_SECONDS)
            used = tree_cpu_seconds_of(server.processes()) - before
            sample = meter.sample(_case(lab, sender), number, source.stat().st_size)
        require_stored(server.folder, source)
    lab.keep(replace(sample, seconds=seconds, cpu_seconds=used, background_cpu_seconds=None))


def _row(lab: Lab, sender: Sender) -> tuple[str, ...]:
    samples = lab.of(_case(lab, sender))
    beside = [sample.seconds for sample in lab.of(f"{_size(lab) / MB:g} MB: {CURL}")]
    return (
        sender.name,
        spread(_seconds_of(samples), 2),
        ratio(_seconds_of(samples), beside),
        spread(costs_of(samples), 2),
        spread([sample.peak_mib for sample in samples]),
    )


def summary(lab: Lab) -> Table:
    """What people run, as it comes; for the README."""
    senders = [sender for sender in SENDERS if sender.name in NAMES and sender.name != CURL]
    rows = [_row(lab, sender) for sender in senders if lab.of(_case(lab, sender))]
    return Table(f"{_size(lab) / MB:g} MB on one machine", COLUMNS, rows)


def draw(lab: Lab) -> Plot:
    """Seconds, and what they cost the server."""
    cases = lab.cases(f"{_size(lab) / MB:g} MB: ")
    ours = [case for case in cases if case.startswith("Sluice, its")]
    panels = (
        panel_of("seconds", cases, _seconds_of, ours=ours, digits=2),
        panel_of("CPU s/GB of the server", cases, costs_of, ours=ours, digits=2),
    )
    return Plot("One file over loopback", panels)


def _seconds_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


BENCHMARK = Benchmark(
    name="loopback",
    summary="one file of 1 GB over loopback, by what people run",
    run=run,
    draw=draw,
    summary_of=summary,
    needed_bytes=3 * GB,
    rounds=5,
    seconds=900,
    quick_seconds=3,
)
