"""What the figures of a disk mean: the table, the plot, the knee, the time of a chunk. No Flask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.numbers import bytes_in_words
from app.run.admin.disk_bench import KIB, MIB, Cell, Mode

KNEE_SHARE = 0.8
"""The knee is the smallest block that reaches this share of the best rate: beyond it, larger
blocks cost memory and win little."""

SERVER_BLOCK_BYTES = MIB
"""The nearest size measured to what the server writes and reads at once (ingest/blocks.py)."""

PLOT_COLUMNS, PLOT_ROWS = 100, 20
"""The largest plot; a narrower terminal gets a narrower one."""

RATE_TICKS = [digit * 10**power for power in range(5) for digit in (1, 2, 5)]
"""MB/s."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """All cells of one folder; `label` says which."""

    label: str
    cells: tuple[Cell, ...]

    def of(self, mode: Mode) -> list[Cell]:
        """The cells of a mode that were measured, by rising block size."""
        return [cell for cell in self.cells if cell.mode is mode and cell.bytes_per_second]

    @property
    def block_sizes(self) -> list[int]:
        """Every block size, rising."""
        return sorted({cell.block_bytes for cell in self.cells})


def block_name(block_bytes: int) -> str:
    """The size in its largest whole unit."""
    if block_bytes % MIB == 0:
        return f"{block_bytes // MIB} MiB"
    return f"{block_bytes // KIB} KiB" if block_bytes % KIB == 0 else f"{block_bytes} B"


def knee(cells: Sequence[Cell]) -> Cell | None:
    """The first cell with `KNEE_SHARE` of the best rate."""
    rates = [cell.bytes_per_second or 0.0 for cell in cells]
    fast = (
        cell for cell, rate in zip(cells, rates, strict=True) if rate >= KNEE_SHARE * max(rates)
    )
    return next(fast, None)


def table_lines(measurement: Measurement) -> list[str]:
    """Block sizes down, modes across, MB/s (decimal, as `dd` prints them)."""
    rates = {(cell.mode, cell.block_bytes): _rate(cell) for cell in measurement.cells}
    lines = ["block    " + "".join(f"{mode.value:>18}" for mode in Mode)]
    for size in measurement.block_sizes:
        cells = "".join(f"{rates.get((mode, size), ''):>18}" for mode in Mode)
        lines.append(f"{block_name(size):>7}  {cells}")
    reasons = {cell.why_not: cell.block_bytes for cell in measurement.cells if cell.why_not}
    lines += [f"-: {reason} (up to {block_name(size)})" for reason, size in reasons.items()]
    return [f"{measurement.label}, MB/s", *lines]


def plot_lines(measurement: Measurement, width: int) -> list[str]:
    """Block size across, MB/s up, both logarithmic, for a terminal of `width` columns."""
    import plotext  # noqa: PLC0415 - 0.05 CPU s that no web worker needs

    sizes = measurement.block_sizes
    plotext.clear_figure()
    plotext.theme("clear")  # The markers tell the modes apart on a terminal without colours, too.
    plotext.plotsize(min(width, PLOT_COLUMNS), PLOT_ROWS)
    plotext.xscale("log")
    plotext.yscale("log")
    plotext.xticks(sizes, [block_name(size) for size in sizes])
    rates = [_mb_per_second(cell) for cell in measurement.cells if cell.bytes_per_second]
    plotext.yticks([tick for tick in RATE_TICKS if min(rates) <= tick <= max(rates)])
    for mode, marker in zip(Mode, "oxw+", strict=True):
        if cells := measurement.of(mode):
            plotext.scatter(
                [cell.block_bytes for cell in cells],
                [_mb_per_second(cell) for cell in cells],
                label=mode.value,
                marker=marker,
            )
    plotext.title("MB/s by block size")
    return [line.rstrip() for line in plotext.uncolorize(plotext.build()).splitlines()]


def meaning_lines(measurement: Measurement, chunk_bytes: int) -> list[str]:
    """The knee of each mode, and the time one chunk takes in small, in our and in best blocks."""
    lines = []
    for mode in Mode:
        cells = measurement.of(mode)
        found = knee(cells)
        if found is None:
            continue
        times = [_chunk_time(cell, chunk_bytes) for cell in _telling(cells)]
        lines.append(
            f"{mode.value}: {KNEE_SHARE:.0%} of the best from {block_name(found.block_bytes)} on; "
            f"one {bytes_in_words(chunk_bytes)} chunk: {', '.join(times)}"
        )
    return lines


def _telling(cells: list[Cell]) -> list[Cell]:
    """The smallest block, the server's, and the fastest, each once."""
    nearest = min(cells, key=lambda cell: abs(cell.block_bytes - SERVER_BLOCK_BYTES))
    fastest = max(cells, key=lambda cell: cell.bytes_per_second or 0.0)
    chosen = {cell.block_bytes: cell for cell in (cells[0], nearest, fastest)}
    return [chosen[size] for size in sorted(chosen)]


def _chunk_time(cell: Cell, chunk_bytes: int) -> str:
    seconds = chunk_bytes / (cell.bytes_per_second or 1.0)
    text = f"{seconds:.3f}" if seconds < 0.1 else f"{seconds:.2f}"
    return f"{text} s in blocks of {block_name(cell.block_bytes)}"


def _rate(cell: Cell) -> str:
    if cell.bytes_per_second is None:
        return "-"
    rate = _mb_per_second(cell)
    return f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"


def _mb_per_second(cell: Cell) -> float:
    return (cell.bytes_per_second or 0.0) / 1e6
