"""A long line that loses packets, or is cut: our client, our page, and what others send with.

Needs root, for the namespaces. A run takes hours; every sample is saved as soon as it is there, and
the next run goes on where one stopped. What arrived is compared with what was sent every time.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.lib.harness import Benchmark, Lab, NotRunnable
from bench.lib.lossy_line import MTU, LossyLine, Quality, lossy_line, what_is_missing
from bench.lib.meter import await_idle
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table
from bench.lib.samples import MB, Sample, spread
from bench.peers.process import PeerServer
from bench.peers.senders import (
    AS_THEY_COME,
    SENDERS,
    Sender,
    client_environment,
    require_stored,
    runnable,
)
from tests.live_server import ROOT

MOST_SECONDS = 120
"""A sender that takes longer, beside the length of a cut, is ended and not measured again."""

BROWSER_SECONDS = 60
"""A page may take as much more, for the start of the browser, which does not count."""

PORT = 8000

CUT_AFTER_BYTES = 8 * MB
BACK_BYTES = 200_000
"""A sender is back once so many have passed since the end of a cut."""

SEGMENT_BYTES = MTU - 52
"""What a full packet carries beside the headers of IP and TCP."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """A file and a line; the loss is a percentage of packets in each direction."""

    size: int = 20 * MB
    round_trip_ms: int = 150
    loss: int = 0
    cut_seconds: int = 0

    @property
    def name(self) -> str:
        """As cases begin."""
        cut = f", cut {self.cut_seconds} s" if self.cut_seconds else ""
        return f"{self.size / MB:g} MB, {self.round_trip_ms} ms, {self.loss} %{cut}"

    @property
    def quality(self) -> Quality:
        """20 Mbit/s."""
        return Quality(loss=self.loss / 100, delay_seconds=self.round_trip_ms / 2000)

    @property
    def most_seconds(self) -> int:
        """When a sender is ended."""
        return MOST_SECONDS + self.cut_seconds


@dataclass(frozen=True, slots=True)
class Part:
    """A table: ours and the best peers are measured `rounds` times, the others less or not."""

    title: str
    columns: Sequence[Conditions]
    rounds: int
    rounds_of_others: int = 0

    def rounds_of(self, sender: Sender) -> int:
        """How often a sender is measured."""
        return self.rounds if sender.is_own or sender.is_best else self.rounds_of_others


def _losses(round_trip_ms: int) -> list[Conditions]:
    return [Conditions(round_trip_ms=round_trip_ms, loss=loss) for loss in (0, 1, 3)]


PARTS = (
    Part("A line that loses packets, 150 ms", _losses(150), rounds=5, rounds_of_others=1),
    Part("A line that loses packets, 20 ms", _losses(20), rounds=3),
    Part("A line that loses packets, 300 ms", _losses(300), rounds=3),
    Part("A larger file", [Conditions(size=100 * MB, loss=1)], rounds=3),
    Part(
        "A line that is cut",
        [Conditions(size=30 * MB, cut_seconds=seconds) for seconds in (20, 100)],
        rounds=3,
        rounds_of_others=1,
    ),
)

NOTES = (
    "Seconds until the server has all of it, medians and extremes: of a program with its start, of "
    "a page from the choice of the file. 20 Mbit/s in each direction, a queue of one round trip, "
    "cubic unless the sender asks for another; 20 MB take 8.3 s at best. The digest of every file "
    "on the server's disk was compared.",
    f"Cuts come after {CUT_AFTER_BYTES // MB} MB. In brackets: seconds from the line's return "
    f"until {BACK_BYTES // 1000} kB have passed, and the share of the file that was sent twice.",
)


def run(lab: Lab) -> list[Table]:
    """Measure what is not saved yet, and return the tables."""
    if missing := what_is_missing():
        raise NotRunnable(missing)
    lab.resume(BENCHMARK.name)
    senders, note = runnable()
    parts = [_smaller(part) for part in PARTS] if lab.is_quick else PARTS
    failures = []
    for number in lab.rounds():
        turns = [
            partial(_measure, lab, number, sender, conditions)
            for part in parts
            for conditions in part.columns
            for sender in senders
            if number < part.rounds_of(sender) and _is_due(lab, number, sender, conditions)
        ]
        # There and back, so that no sender always follows the same other.
        for turn in lab.in_time(turns[:: -1 if number % 2 else 1]):
            try:
                turn()
            except SenderFailed as error:
                print(f"  failed: {error}", flush=True)
                failures.append(str(error).partition("\n")[0])
    notes = [*NOTES, note, *([f"Failed: {'; '.join(failures)}."] if failures else [])]
    tables = [table for part in parts if (table := _table(lab, part, senders)).rows]
    return [*tables[:-1], *(replace(table, notes=tuple(notes)) for table in tables[-1:])]


class SenderFailed(Exception):
    """A sender ended with an error, or the server has something else than the file."""


def _smaller(part: Part) -> Part:
    """For a quick run: a tenth of a file, and no cuts, which need time."""
    columns = [replace(one, size=one.size // 10) for one in part.columns if not one.cut_seconds]
    return replace(part, columns=columns)


def _case(sender: Sender, conditions: Conditions) -> str:
    return f"{conditions.name}: {sender.name}"


def _is_due(lab: Lab, number: int, sender: Sender, conditions: Conditions) -> bool:
    case = _case(sender, conditions)
    earlier = [sample.seconds for sample in lab.of(case)]
    is_hopeless = bool(earlier) and min(earlier) >= conditions.most_seconds
    return not is_hopeless and lab.is_due(case, number)


def _measure(lab: Lab, number: int, sender: Sender, conditions: Conditions) -> None:
    case = _case(sender, conditions)
    source = lab.source(conditions.size, "recording.mp4")
    with (
        lab.scratch("line") as folder,
        lossy_line(conditions.quality, seed=number) as line,
    ):
        start_server(sender, folder, line, line.server.address)
        cut = _Cut(line, conditions.cut_seconds)
        began = time.monotonic()
        try:
            sent = line.client.run(
                sender.command_for(f"{line.server.address}:{PORT}", source),
                timeout=conditions.most_seconds + (BROWSER_SECONDS if sender.is_page else 0),
                capture_output=True,
                text=True,
                env=client_environment(folder),
            )
        except subprocess.TimeoutExpired:
            seconds = float(conditions.most_seconds)
        else:
            seconds = time.monotonic() - began
            if sent.returncode:
                raise SenderFailed(f"{case}: {sent.returncode}\n{sent.stderr[-2000:]}")
            if sender.is_page:
                seconds = float(sent.stdout)
            try:
                require_stored(folder, source)
            except ValueError as error:
                raise SenderFailed(f"{case}: {error}\n{sent.stdout[-2000:]}") from error
        finally:
            cut.end()
        sample = Sample(
            case=case,
            round=number,
            byte_count=conditions.size,
            seconds=min(seconds, conditions.most_seconds),
            recovery_seconds=cut.recovery_seconds,
            line_bytes=line.up.passed_bytes,
        )
    lab.keep(sample)


def start_server(sender: Sender, folder: Path, line: LossyLine, host: str) -> None:
    """Have the sender's server listen at `PORT`, and return once it is idle."""
    (folder / "files").mkdir()
    command = sender.receiver.command(folder, PORT, host)
    with (folder / "log").open("wb") as log:
        process = line.server.start(command, stdout=log, stderr=log, cwd=ROOT)
    line.server.await_listener(PORT)
    await_idle(PeerServer(folder, PORT, process).processes)


class _Cut:
    """Cuts the line once some of the file has passed, and watches until bytes pass again."""

    def __init__(self, line: LossyLine, seconds: int) -> None:
        self.recovery_seconds: float | None = None
        self._line = line
        self._seconds = seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if seconds:
            self._thread.start()

    def end(self) -> None:
        """Watch no longer."""
        self._is_over.set()
        if self._seconds:
            self._thread.join()

    def _run(self) -> None:
        self._await(CUT_AFTER_BYTES)
        self._line.cut(self._seconds)
        self._is_over.wait(self._seconds)
        returned = time.monotonic()
        if self._await(self._line.up.passed_bytes + BACK_BYTES):
            self.recovery_seconds = time.monotonic() - returned

    def _await(self, byte_count: int) -> bool:
        """Whether so many have passed before the sender ended."""
        while self._line.up.passed_bytes < byte_count:
            if self._is_over.wait(0.05):
                return False
        return True


def _table(lab: Lab, part: Part, senders: Sequence[Sender]) -> Table:
    """Of those that have been measured."""
    rows = [
        (
            sender.name,
            *(_cell(samples, one) for samples, one in zip(found, part.columns, strict=True)),
        )
        for sender in senders
        if any(found := [lab.of(_case(sender, one)) for one in part.columns])
    ]
    return Table(part.title, ("server, sender", *(one.name for one in part.columns)), rows)


def summary(lab: Lab) -> Table:
    """What people run, as it comes, at 150 ms; for the README."""
    part = PARTS[0]
    table = _table(lab, part, [sender for sender in SENDERS if sender.name in AS_THEY_COME])
    lost = [f"{conditions.loss} % lost" for conditions in part.columns]
    title = f"Seconds for {part.columns[0].size / MB:g} MB over 20 Mbit/s and 150 ms; 8.3 at best"
    return replace(table, title=title, columns=("server, sender", *lost))


def _cell(samples: Sequence[Sample], conditions: Conditions) -> str:
    seconds = [sample.seconds for sample in samples]
    if seconds and min(seconds) >= conditions.most_seconds:
        return f"> {conditions.most_seconds}"
    if not seconds or not conditions.cut_seconds:
        return spread(seconds, 1)
    back = [one.recovery_seconds for one in samples if one.recovery_seconds is not None]
    twice = [_share_sent_twice(sample) for sample in samples]
    return f"{spread(seconds, 1)} [{spread(back, 1)}; {spread(twice)} %]"


def _share_sent_twice(sample: Sample) -> float:
    """Percent of the file; in it are requests, acknowledgements and what TCP sent again."""
    passed = (sample.line_bytes or 0) * SEGMENT_BYTES / MTU
    return max(0.0, passed / sample.byte_count - 1) * 100


def draw(lab: Lab) -> Plot:
    """Seconds by loss, at 150 ms."""
    size = f"{PARTS[0].columns[0].size / MB / (10 if lab.is_quick else 1):g}"
    panels = []
    for conditions in PARTS[0].columns:
        cases = lab.cases(f"{size} MB, 150 ms, {conditions.loss} %: ")
        ours = [name for name in cases if name.startswith("Sluice, its")]
        title = f"{conditions.loss} % of the packets lost: seconds"
        panels.append(panel_of(title, cases, _seconds_of, ours=ours, digits=1))
    return Plot("A line that loses packets", tuple(panels))


def _seconds_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


BENCHMARK = Benchmark(
    name="line",
    summary="20 MB over a long line that loses packets, by what people run",
    run=run,
    draw=draw,
    summary_of=summary,
    needed_bytes=MB * 500,
    rounds=5,
    seconds=4 * 3600,
    quick_seconds=4,
)
