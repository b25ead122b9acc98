"""Two senders on one line at the same time: what part of it each gets, and on how many connections.

Needs root, for the namespaces; a round takes eight minutes.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import inet_aton

from bench.cases.line import PORT, start_server
from bench.lib.harness import Benchmark, Lab, NotRunnable
from bench.lib.lossy_line import LossyLine, Quality, lossy_line, what_is_missing
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import MB, Sample, spread
from bench.peers.senders import SENDERS, Sender, client_environment

NAMES = {sender.name: sender for sender in SENDERS}
CLIENT, CLIENT_WITH_CUBIC, PAGE, CURL = (
    NAMES[f"Sluice, {name}"]
    for name in ("its client", "its client with cubic", "its page", "curl -F")
)

ROUND_TRIPS_MS = (20, 150)

FIRST_SIZE = 60 * MB
SECOND_SIZE = 40 * MB
"""Less: the first has sent a third by the time that a browser has started for the second."""

BEGUN_BYTES = 500_000
"""A sender has begun once so much has passed; a page is loaded with less."""

FIRST_ADDRESS, SECOND_ADDRESS, ANY_ADDRESS = "10.99.0.1", "10.99.0.11", "0.0.0.0"
"""Of one server: the address that a packet goes to tells whose it is."""

CONNECTIONS_AFTER_SECONDS = 5.0

MOST_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Pair:
    """`first` begins, and `second` joins it."""

    first: Sender
    second: Sender

    def case(self, round_trip_ms: int) -> str:
        """As in the tables."""
        return f"{round_trip_ms} ms: {self.first.name} beside {self.second.name}"


PAIRS = (
    Pair(CURL, CURL),
    Pair(CLIENT, CLIENT),
    Pair(PAGE, PAGE),
    Pair(PAGE, CLIENT),
    Pair(PAGE, CLIENT_WITH_CUBIC),
    Pair(CLIENT_WITH_CUBIC, CLIENT_WITH_CUBIC),
    Pair(CLIENT, CURL),
    Pair(CLIENT_WITH_CUBIC, CURL),
    Pair(PAGE, CURL),
)

NOTES = (
    f"20 Mbit/s; packets get lost in the queue alone, which holds one round trip. "
    f"{FIRST_SIZE / MB:g} MB by the first, {SECOND_SIZE / MB:g} MB by the second. Share: of what "
    "passed from the second's first bytes until the end of either. Connections: those of the first "
    f"alone, {CONNECTIONS_AFTER_SECONDS:g} s after its first bytes. curl has a single connection.",
)


def run(lab: Lab) -> list[Table]:
    """Measure what is not saved yet, and return the table."""
    if missing := what_is_missing():
        raise NotRunnable(missing)
    lab.resume(BENCHMARK.name)
    cases = [(pair, ms) for ms in ROUND_TRIPS_MS for pair in PAIRS]
    for number in lab.rounds():
        due = [(pair, ms) for pair, ms in cases if lab.is_due(pair.case(ms), number)]
        for pair, ms in lab.in_time(due):
            lab.keep(_measured(lab, number, pair, ms))
    rows = [_row(lab, pair.case(ms)) for pair, ms in cases if lab.of(pair.case(ms))]
    columns = ("first beside second", "share of the first", "its connections")
    return [Table("Two senders on one line", columns, rows, NOTES)]


def _measured(lab: Lab, number: int, pair: Pair, round_trip_ms: int) -> Sample:
    quality = Quality(loss=0.0, delay_seconds=round_trip_ms / 2000)
    first_size, second_size = (lab.pick(size, size // 4) for size in (FIRST_SIZE, SECOND_SIZE))
    with lab.scratch("line") as folder, lossy_line(quality, seed=number) as line:
        line.server.add_address(SECOND_ADDRESS)
        start_server(pair.first, folder, line, ANY_ADDRESS)
        first = _start(pair.first, FIRST_ADDRESS, lab.source(first_size, "one.mp4"), folder, line)
        began = _await_begun(line, FIRST_ADDRESS)
        time.sleep(0 if lab.is_quick else CONNECTIONS_AFTER_SECONDS)
        connections = _count_connections(line)
        file = lab.source(second_size, "another.mp4")
        second = _start(pair.second, SECOND_ADDRESS, file, folder, line)
        _await_begun(line, SECOND_ADDRESS)
        before = Counter(line.up.passed)
        ends = [_end_of(pair.first, first), _end_of(pair.second, second)]
        ended = select.select(ends, [], [], MOST_SECONDS)[0]
        passed = line.up.passed - before
    if not ended:
        raise TimeoutError(f"{pair.case(round_trip_ms)}: neither ended in {MOST_SECONDS} s")
    return Sample(
        case=pair.case(round_trip_ms),
        round=number,
        byte_count=first_size,
        seconds=time.monotonic() - began,
        share=passed[inet_aton(FIRST_ADDRESS)] / passed.total(),
        connections=connections,
    )


def _start(
    sender: Sender, address: str, source: Path, folder: Path, line: LossyLine
) -> subprocess.Popen[bytes]:
    command = sender.command_for(f"{address}:{PORT}", source)
    with (folder / "senders").open("ab") as log:
        environment = client_environment(folder)
        return line.client.start(command, stdout=subprocess.PIPE, stderr=log, env=environment)


def _end_of(sender: Sender, process: subprocess.Popen[bytes]) -> int:
    """A descriptor that can be read once all is sent: a page says so before its browser closes."""
    if sender.is_page and process.stdout is not None:
        return process.stdout.fileno()
    return os.pidfd_open(process.pid)


def _await_begun(line: LossyLine, address: str) -> float:
    """Return, once enough has passed, the time by the monotonic clock."""
    deadline = time.monotonic() + MOST_SECONDS
    while line.up.passed[inet_aton(address)] < BEGUN_BYTES:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing passes to {address}")
        time.sleep(0.02)
    return time.monotonic()


def _count_connections(line: LossyLine) -> int:
    """To the server, as the client's end sees them."""
    words = ["ss", "-Htn", "state", "established", f"dport = :{PORT}"]
    found = line.client.run(words, capture_output=True, text=True)
    return len(found.stdout.splitlines())


def _row(lab: Lab, case: str) -> tuple[str, ...]:
    samples = lab.of(case)
    return (
        case,
        spread(_shares_of(samples), 2),
        spread([float(sample.connections or 0) for sample in samples]),
    )


def draw(lab: Lab) -> Plot:
    """Shares, by how long a round trip takes."""
    panels = [
        panel_of(f"{ms} ms: share of the first", cases, _shares_of, ours=cases, digits=2)
        for ms in ROUND_TRIPS_MS
        if (cases := lab.cases(f"{ms} ms: "))
    ]
    return Plot("Two senders on one line", tuple(panels))


def _shares_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.share or 0.0 for sample in samples]


BENCHMARK = Benchmark(
    name="line_shares",
    summary="two senders on one line at the same time, and what each gets of it",
    run=run,
    draw=draw,
    needed_bytes=MB * 500,
    rounds=3,
    seconds=3600,
    quick_seconds=1,
)
