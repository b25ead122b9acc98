"""Many small files and few large ones: one at a time and several at once, beside `cp`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.client import in_batches, in_order
from bench.disk import measure_cp
from bench.harness import GB, MB, Benchmark, Lab
from bench.meter import Meter
from bench.report import Table, ratio, spread

SETTINGS = {"default": {}, "DURABILITY=none": {"SLUICE_DURABILITY": "none"}}
PARALLEL = (1, 2, 4, 8)
WAYS: dict[str, Callable[..., None]] = {"at once": in_order, "batch": in_batches}
COLUMNS = ("case", "seconds", "of cp*", "MB/s", "CPU s/GB", "peak memory above idle, MiB")
NOTES = (
    "\\* Median of the ratios within a round: the default settings beside `cp, then sync`, "
    "`DURABILITY=none` beside `cp`.",
    "At once: each file is one multipart request, as a plain HTML form sends it, and every "
    "connection takes the next file that is left. Batch: so many requests to `/batch`, each with "
    "its share of the files. The SHA-256 of a file is computed as it arrives, and is in the CPU "
    "column. `cp`: one process, the same files, no digest.",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """So many files of one size."""

    count: int
    length: int

    @property
    def name(self) -> str:
        """As in the table."""
        return f"{self.count} x {self.length // MB} MB"


def run(lab: Lab) -> list[Table]:
    """Measure and tell."""
    small = Batch(lab.pick(1344, 64), 3 * MB)
    large = Batch(4, lab.pick(180, 45) * MB)
    folders = {batch: _make_files(lab, batch) for batch in (small, large)}
    for number in lab.rounds():
        for batch, folder in folders.items():
            measure_cp(lab, number, batch.name, folder)
            for way in _ways(lab):
                for settings in ["default"] if lab.is_quick else SETTINGS:
                    _measure(lab, number, f"{batch.name}, {way}, {settings}", folder)
    return [_table(lab, batch) for batch in folders]


def _ways(lab: Lab) -> list[str]:
    if lab.is_quick:
        return ["1 at once", "4 at once", "2 batch"]
    return [*(f"{count} at once" for count in PARALLEL), "1 batch", "2 batch"]


def _make_files(lab: Lab, batch: Batch) -> Path:
    folder = batch.name.replace(" ", "")
    for index in range(batch.count):
        lab.source(batch.length, f"{folder}/film{index:04}.mp4")
    return lab.folder / folder


def _measure(lab: Lab, number: int, case: str, folder: Path) -> None:
    _, way, settings = case.split(", ")
    parallel, _, kind = way.partition(" ")
    files = sorted(folder.iterdir())
    with lab.server(**SETTINGS[settings]) as server, Meter(server.processes()) as meter:
        WAYS[kind](files, parallel=int(parallel), port=server.port)
        lab.keep(meter.sample(case, number, sum(path.stat().st_size for path in files)))


def _table(lab: Lab, batch: Batch) -> Table:
    names = dict.fromkeys(sample.case for sample in lab.samples)
    cases = [name for name in names if name.startswith(batch.name)]
    return Table(batch.name, COLUMNS, [_row(lab, case) for case in cases], NOTES)


def _row(lab: Lab, case: str) -> tuple[str, ...]:
    samples = lab.of(case)
    cpu = [s.cpu_seconds / s.byte_count * GB for s in samples if s.cpu_seconds is not None]
    memory = [s.peak_bytes / 1024**2 for s in samples if s.peak_bytes is not None]
    return (
        case.partition(", ")[2],
        spread([sample.seconds for sample in samples], 2),
        _ratio_to_cp(lab, case),
        spread([sample.mb_per_second for sample in samples]),
        spread(cpu, 2),
        spread(memory),
    )


def _ratio_to_cp(lab: Lab, case: str) -> str:
    batch, _, rest = case.partition(", ")
    if rest.startswith("cp"):
        return "-"
    beside = "cp, then sync" if rest.endswith("default") else "cp"
    ours, cp = lab.of(case), lab.of(f"{batch}, {beside}")
    return ratio([sample.seconds for sample in ours], [sample.seconds for sample in cp])


BENCHMARK = Benchmark(
    name="many_files",
    summary="1344 files of 3 MB and 4 of 180 MB, one at a time and in parallel",
    run=run,
    needed_bytes=10 * GB,
)
