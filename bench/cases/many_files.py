"""Many small files and few large ones: one at a time, several at once, in batches, beside `cp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.lib.harness import Benchmark, Lab
from bench.lib.meter import Meter
from bench.lib.plot import Plot, panel_of
from bench.lib.report import Table, Target, target_table
from bench.lib.samples import GB, MB, Sample, costs_of, paired_ratio, rates_of, ratio, spread
from bench.lib.uploading import in_batches, in_order
from bench.peers.disk import CP, CP_SYNCED, measure_cp

DEFAULT, NOT_SYNCED = "default", "DURABILITY=none"
SETTINGS = {DEFAULT: {}, NOT_SYNCED: {"SLUICE_DURABILITY": "none"}}
BESIDE = {DEFAULT: CP_SYNCED, NOT_SYNCED: CP}
"""What does the same for the same files: waits for the disk, or does not."""

ONE = "1 at once"
BATCHES = ("1 batch", "2 batch")
SOME_WAYS = (ONE, "4 at once", *BATCHES)
ALL_WAYS = (ONE, "2 at once", "4 at once", "8 at once", *BATCHES)
SEND: dict[str, Callable[..., None]] = {"at once": in_order, "batch": in_batches}

GAIN = 2 * 17.8 / 9.75
"""Twice the gain of the write-up: one thread took 17.8 s there, a pool 9.75 s."""

ALLOWED = 1.3
"""Most time for a batch, as a multiple of the time of `cp`."""

COLUMNS = ("case", "seconds", "of cp*", "MB/s", "CPU s/GB", "peak memory above idle, MiB")
NOTES = (
    f"\\* Median of the ratios within a round: the default settings beside `{CP_SYNCED}`, "
    f"`{NOT_SYNCED}` beside `{CP}`.",
    "At once: each file is one multipart request, as a plain HTML form sends it, and every "
    "connection takes the next file that is left. Batch: so many requests to `/batch`, each with "
    "its share of the files. The SHA-256 of a file is computed as it arrives, and is in the CPU "
    "column. `cp`: one process, the same files, no digest.",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A number of files of one size."""

    count: int
    length: int

    @property
    def name(self) -> str:
        """As in the table."""
        return f"{self.count} x {self.length // MB} MB"


Ways = dict[str, tuple[str, ...]]
"""How files are sent, by settings."""


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    small, large = Batch(lab.pick(1344, 64), 3 * MB), Batch(4, lab.pick(180, 45) * MB)
    folders = {batch: _make_files(lab, batch) for batch in (small, large)}
    ways: Ways = {DEFAULT: SOME_WAYS if lab.is_quick else ALL_WAYS, NOT_SYNCED: (ONE, *BATCHES)}
    cases: dict[Batch, Ways] = {small: ways, large: {DEFAULT: (ONE, "4 at once", BATCHES[0])}}
    for number in lab.rounds():
        for turn in lab.in_time(_turns(folders, cases)[:: -1 if number % 2 else 1]):
            turn(lab, number)
    return [_table(lab, small), _table(lab, large, NOTES), targets(lab, small.name)]


def _turns(
    folders: dict[Batch, Path], cases: dict[Batch, Ways]
) -> list[Callable[[Lab, int], None]]:
    turns: list[Callable[[Lab, int], None]] = []
    for batch, folder in folders.items():
        turns.append(partial(measure_cp, case=batch.name, source=folder))
        turns += [
            partial(_measure, batch=batch, way=way, settings=settings, folder=folder)
            for settings, ways in cases[batch].items()
            for way in ways
        ]
    return turns


def _make_files(lab: Lab, batch: Batch) -> Path:
    folder = batch.name.replace(" ", "")
    for index in range(batch.count):
        lab.source(batch.length, f"{folder}/film{index:04}.mp4")
    return lab.folder / folder


def _measure(lab: Lab, number: int, *, batch: Batch, way: str, settings: str, folder: Path) -> None:
    parallel, _, kind = way.partition(" ")
    files = sorted(folder.iterdir())
    with lab.server(**SETTINGS[settings]) as server, Meter(server.processes()) as meter:
        SEND[kind](files, parallel=int(parallel), port=server.port)
        case = f"{batch.name}, {way}, {settings}"
        lab.keep(meter.sample(case, number, batch.count * batch.length))


def _table(lab: Lab, batch: Batch, notes: tuple[str, ...] = ()) -> Table:
    rows = [_row(lab, batch.name, case) for case in lab.cases(f"{batch.name}, ")]
    return Table(batch.name, COLUMNS, rows, notes)


def _row(lab: Lab, batch: str, case: str) -> tuple[str, ...]:
    samples = lab.of(f"{batch}, {case}")
    seconds = _seconds_of(samples)
    if case in BESIDE.values():
        return (case, spread(seconds, 2), "-", spread(rates_of(samples)), "-", "-")
    return (
        case,
        spread(seconds, 2),
        ratio(seconds, _seconds_of(lab.of(f"{batch}, {_beside(case)}"))),
        spread(rates_of(samples)),
        spread(costs_of(samples), 2),
        spread([sample.peak_mib for sample in samples]),
    )


def _beside(case: str) -> str:
    return BESIDE[case.rpartition(", ")[2]]


def targets(lab: Lab, batch: str) -> Table:
    """The targets for the small files, and what was reached."""

    def times(one: str, other: str) -> float | None:
        return paired_ratio(*(_seconds_of(lab.of(f"{batch}, {case}")) for case in (one, other)))

    gains = [
        Target(
            what=f"{case}: times as fast as {ONE}",
            measured=times(f"{ONE}, {DEFAULT}", case),
            at_least=round(GAIN, 2),
        )
        for case in (f"{way}, {DEFAULT}" for way in BATCHES)
    ]
    shares = [
        Target(
            what=f"{case}: seconds, of {_beside(case)}",
            measured=times(case, _beside(case)),
            at_most=ALLOWED,
        )
        for case in (f"{way}, {settings}" for settings in SETTINGS for way in BATCHES)
    ]
    return target_table([*gains, *shares])


def draw(lab: Lab) -> Plot:
    """Seconds for the small and for the large files."""
    batches = dict.fromkeys(sample.case.partition(", ")[0] for sample in lab.samples)
    panels = []
    for batch in batches:
        cases = lab.cases(f"{batch}, ")
        ours = [name for name in cases if name not in BESIDE.values()]
        panels.append(panel_of(f"{batch}: seconds", cases, _seconds_of, ours=ours, digits=2))
    return Plot("Many files", tuple(panels))


def _seconds_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


BENCHMARK = Benchmark(
    name="many_files",
    summary="1344 files of 3 MB and 4 of 180 MB: one at a time, in parallel, in batches",
    run=run,
    draw=draw,
    needed_bytes=10 * GB,
    seconds=400,
    quick_seconds=7,
)
