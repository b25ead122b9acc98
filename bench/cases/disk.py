"""The disk alone, by block size: what `flask disk-bench` measures, with a plot."""

from __future__ import annotations

from app.run.admin.disk import (
    BLOCK_SIZES,
    MIB,
    Bounds,
    Measurement,
    Mode,
    TableCell,
    block_name,
    meaning_lines,
    measure,
    needed_bytes,
)
from bench.lib.harness import Benchmark, Lab
from bench.lib.plot import Lines, Plot
from bench.lib.report import Table
from bench.lib.samples import Sample, rates_of, spread
from bench.lib.uploading import CHUNK_BYTES

FULL = Bounds(256 * MIB, seconds=1.0)
QUICK = Bounds(16 * MIB, seconds=0.03)


def run(lab: Lab) -> list[Table]:
    """Measure, and return the tables."""
    cells: list[TableCell] = []
    for number in lab.rounds():
        cells = list(measure(lab.folder, QUICK if lab.is_quick else FULL))
        lab.samples += [
            Sample(
                case=_name(cell.mode, cell.block_bytes),
                round=number,
                byte_count=cell.byte_count,
                seconds=cell.seconds,
            )
            for cell in cells
            if cell.byte_count
        ]
    rows = [(block_name(size), *(_rate(lab, mode, size) for mode in Mode)) for size in BLOCK_SIZES]
    notes = meaning_lines(Measurement("", tuple(cells)), CHUNK_BYTES)
    columns = ("block", *(mode.value for mode in Mode))
    return [Table("MB/s by block size", columns, rows, tuple(notes))]


def _name(mode: Mode, block_bytes: int) -> str:
    return f"{mode.value}, {block_name(block_bytes)}"


def _rate(lab: Lab, mode: Mode, block_bytes: int) -> str:
    rates = rates_of(lab.of(_name(mode, block_bytes)))
    return spread(rates, 0 if rates and min(rates) >= 100 else 1)


def draw(lab: Lab) -> Plot:
    """A line for each way to write and to read."""
    lines = {
        mode.value: [
            (float(size), float(f"{rate:.4g}"))
            for size in BLOCK_SIZES
            for rate in rates_of(lab.of(_name(mode, size)))[-1:]
        ]
        for mode in Mode
    }
    ticks = {block_name(size): float(size) for size in BLOCK_SIZES}
    title = "MB/s by block size"
    return Plot(
        title, (Lines(title, {name: found for name, found in lines.items() if found}, ticks),)
    )


BENCHMARK = Benchmark(
    name="disk",
    summary="blocks of 1 KiB to 20 MiB, written and read, with and without the page cache",
    run=run,
    draw=draw,
    needed_bytes=needed_bytes(FULL),
    rounds=1,
    quick_seconds=2,
)
