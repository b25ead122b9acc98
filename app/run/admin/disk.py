"""`flask --app wsgi disk-bench`: how fast blocks of each size go to the disk and come back.

Measures buffered and direct writes and reads, and prints a table, a plot and what they mean for a
chunk.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import click

from app.core.numbers import bytes_in_words
from app.run.admin.opening import open_library, operator_command, services
from app.settings import Settings

KIB = 1024
MIB = 1024 * KIB
BLOCK_SIZES = (
    *(KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB),
    *(MIB, 4 * MIB, 10 * MIB, 20 * MIB),
)

KNEE_SHARE = 0.8
"""The knee is the smallest block that reaches this share of the best rate: beyond it, larger
blocks cost memory and win little."""

SERVER_BLOCK_BYTES = MIB
"""The measured size nearest to the server's block size (ingest/copy.py)."""

PLOT_COLUMNS, PLOT_ROWS = 100, 20
"""The largest plot; a narrower terminal gets a narrower one."""

RATE_TICKS = [digit * 10**power for power in range(5) for digit in (1, 2, 5)]
"""MB/s."""

SPARE_BYTES = 64 * MIB
"""Space to leave free in addition to the measurement's: uploads may be running."""

LONGEST_SECONDS = 3600.0


# ---- measuring -----------------------------------------------------------------------------------


class Mode(StrEnum):
    """How blocks are written or read; the value is the column's title."""

    WRITE_BUFFERED = "write, buffered"
    """Through the page cache; the time includes the final fsync."""
    WRITE_DIRECT = "write, direct"
    """Past the page cache (O_DIRECT)."""
    READ_BUFFERED = "read, buffered"
    """Through the page cache, which was asked to drop the file first."""
    READ_DIRECT = "read, direct"
    """Past the page cache (O_DIRECT)."""

    @property
    def is_direct(self) -> bool:
        """Whether the page cache is bypassed."""
        return self in {Mode.WRITE_DIRECT, Mode.READ_DIRECT}

    @property
    def is_write(self) -> bool:
        """Whether blocks are written."""
        return self in {Mode.WRITE_BUFFERED, Mode.WRITE_DIRECT}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Each cell ends at the first of these limits; the fsync of a buffered write is extra."""

    byte_count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """One mode with one block size; `why_not` says why nothing was measured."""

    mode: Mode
    block_bytes: int
    byte_count: int = 0
    seconds: float = 0.0
    why_not: str = ""

    @property
    def bytes_per_second(self) -> float | None:
        """The rate; None if nothing was measured."""
        return self.byte_count / self.seconds if self.byte_count else None

    @property
    def mb_per_second(self) -> float:
        """The rate in MB/s (decimal, as `dd` prints it); 0 if nothing was measured."""
        return (self.bytes_per_second or 0.0) / 1e6


def needed_bytes(bounds: Bounds) -> int:
    """Disk space that `measure` needs."""
    return 2 * max(bounds.byte_count, *BLOCK_SIZES)


def measure(
    folder: Path, bounds: Bounds, block_sizes: Sequence[int] = BLOCK_SIZES
) -> Iterator[TableCell]:
    """Yields the cells of a folder, by mode and increasing block size."""
    length = max(bounds.byte_count, *block_sizes)
    with _nameless_file(folder, length) as written:
        # Reserved blocks that were never written would read as zeros without reaching the disk.
        for position in range(0, length, MIB):
            os.pwrite(written, os.urandom(min(MIB, length - position)), position)
        os.fsync(written)
        for mode in Mode:
            for block_bytes in block_sizes:
                if mode.is_write:
                    # A new file: to overwrite part of a page, the kernel would read it first.
                    with _nameless_file(folder, max(bounds.byte_count, block_bytes)) as fresh:
                        yield _move_blocks(fresh, mode, block_bytes, bounds)
                else:
                    yield _move_blocks(written, mode, block_bytes, bounds)


@contextmanager
def _nameless_file(folder: Path, length: int) -> Iterator[int]:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, length)
        yield file.fileno()


def _move_blocks(descriptor: int, mode: Mode, block_bytes: int, bounds: Bounds) -> TableCell:
    """Write or read blocks from the start of the file."""
    cell = partial(TableCell, mode=mode, block_bytes=block_bytes)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | (os.O_DIRECT if mode.is_direct else 0))
    except OSError:
        return cell(why_not="the file system has no direct I/O")
    with mmap.mmap(-1, block_bytes) as block:  # Page-aligned, as direct I/O requires.
        block.write(os.urandom(block_bytes))  # Touched, and not compressible.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        moved, started = 0, time.perf_counter()
        is_time_up = False
        try:
            while moved == 0 or (moved + block_bytes <= bounds.byte_count and not is_time_up):
                if mode.is_write:
                    moved += os.pwrite(descriptor, block, moved)
                else:
                    moved += os.preadv(descriptor, [block], moved)
                is_time_up = time.perf_counter() >= started + bounds.seconds
        except OSError as error:
            if mode.is_direct and error.errno == errno.EINVAL:
                return cell(why_not="below the disk's own block size")
            raise
        if mode is Mode.WRITE_BUFFERED:
            os.fsync(descriptor)
        return cell(byte_count=moved, seconds=time.perf_counter() - started)


# ---- table, plot, verdict ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measurement:
    """All cells of one folder, which `label` names."""

    label: str
    cells: tuple[TableCell, ...]

    def of(self, mode: Mode) -> list[TableCell]:
        """The measured cells of a mode, by increasing block size."""
        return [cell for cell in self.cells if cell.mode is mode and cell.byte_count]

    @property
    def block_sizes(self) -> list[int]:
        """All block sizes in increasing order."""
        return sorted({cell.block_bytes for cell in self.cells})


def block_name(block_bytes: int) -> str:
    """The size in its largest whole unit."""
    if block_bytes % MIB == 0:
        return f"{block_bytes // MIB} MiB"
    return f"{block_bytes // KIB} KiB" if block_bytes % KIB == 0 else f"{block_bytes} B"


def table_lines(measurement: Measurement) -> list[str]:
    """Block sizes down, modes across, MB/s."""
    cells = {(cell.mode, cell.block_bytes): cell for cell in measurement.cells}
    lines = ["block    " + "".join(f"{mode.value:>18}" for mode in Mode)]
    for size in measurement.block_sizes:
        rates = [cell.mb_per_second if (cell := cells.get((mode, size))) else 0.0 for mode in Mode]
        texts = [f"{rate:.{0 if rate >= 100 else 1}f}" if rate else "-" for rate in rates]
        lines.append(f"{block_name(size):>7}  " + "".join(f"{text:>18}" for text in texts))
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
    rates = [cell.mb_per_second for cell in measurement.cells if cell.byte_count]
    plotext.yticks([tick for tick in RATE_TICKS if min(rates) <= tick <= max(rates)])
    for mode, marker in zip(Mode, "oxw+", strict=True):
        if cells := measurement.of(mode):
            plotext.scatter(
                [cell.block_bytes for cell in cells],
                [cell.mb_per_second for cell in cells],
                label=mode.value,
                marker=marker,
            )
    plotext.title("MB/s by block size")
    return [line.rstrip() for line in plotext.uncolorize(plotext.build()).splitlines()]


def meaning_lines(measurement: Measurement, chunk_bytes: int) -> list[str]:
    """The knee of each mode, and the time per chunk with the smallest, our and the best blocks."""
    lines = []
    for mode in Mode:
        cells = measurement.of(mode)
        found = knee(cells)
        if found is None:
            continue
        nearest = min(cells, key=lambda cell: abs(cell.block_bytes - SERVER_BLOCK_BYTES))
        fastest = max(cells, key=lambda cell: cell.mb_per_second)
        times = []
        for cell in sorted({cells[0], nearest, fastest}, key=lambda cell: cell.block_bytes):
            seconds = chunk_bytes / 1e6 / cell.mb_per_second
            text = f"{seconds:.{3 if seconds < 0.1 else 2}f}"
            times.append(f"{text} s in blocks of {block_name(cell.block_bytes)}")
        lines.append(
            f"{mode.value}: {KNEE_SHARE:.0%} of the best from {block_name(found.block_bytes)} on; "
            f"one {bytes_in_words(chunk_bytes)} chunk: {', '.join(times)}"
        )
    return lines


def knee(cells: Sequence[TableCell]) -> TableCell | None:
    """The first cell with `KNEE_SHARE` of the best rate."""
    best = max((cell.mb_per_second for cell in cells), default=0.0)
    return next((cell for cell in cells if cell.mb_per_second >= KNEE_SHARE * best), None)


def document(measurement: Measurement) -> dict[str, Any]:
    """The cells, serializable as JSON."""
    cells = [
        {
            "mode": cell.mode.value,
            "block_bytes": cell.block_bytes,
            "bytes": cell.byte_count,
            "seconds": cell.seconds,
            "bytes_per_second": cell.bytes_per_second,
            "why_not": cell.why_not or None,
        }
        for cell in measurement.cells
    ]
    return {"folder": measurement.label, "cells": cells}


# ---- the command ---------------------------------------------------------------------------------


def _finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse NaN, which click's ranges accept."""
    if math.isnan(value):
        raise click.BadParameter("must be a number")
    return value


@operator_command("disk-bench")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Measure this folder instead of the staging and library folders.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, LONGEST_SECONDS),
    callback=_finite,
    default=1.0,
    show_default=True,
    help="Time limit for each measurement.",
)
@click.option(
    "--bytes",
    "byte_count",
    type=click.IntRange(1024),
    default=256 * MIB,
    show_default=True,
    help="Byte limit for each measurement, and the size of the file.",
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON, for programs.")
def disk_bench(*, folder: Path | None, seconds: float, byte_count: int, is_json: bool) -> None:
    """Measure how fast blocks of each size go to the disk and come back."""
    settings = services().settings if folder else open_library().settings
    folders = {str(folder): folder} if folder else _own_folders(settings)
    bounds, measurements = Bounds(byte_count, seconds), []
    needed = needed_bytes(bounds) + SPARE_BYTES
    for label, path in folders.items():
        if shutil.disk_usage(path).free < needed:
            text = bytes_in_words(needed)
            raise click.ClickException(f"{path} lacks the {text} that this needs.")
        click.echo(f"measuring {label} ...", err=True)
        try:
            measurements.append(Measurement(label, tuple(measure(path, bounds))))
        except OSError as error:
            raise click.ClickException(f"{path}: {error.strerror}") from error
    if is_json:
        click.echo(json.dumps([document(one) for one in measurements], indent=2))
        return
    columns = shutil.get_terminal_size().columns
    for one in measurements:
        for lines in (
            table_lines(one),
            plot_lines(one, columns),
            meaning_lines(one, settings.chunk_bytes),
        ):
            click.echo("\n".join([*lines, ""]))


def _own_folders(settings: Settings) -> dict[str, Path]:
    """Staging and library, or only staging if the library is on the same file system."""
    staging, library = settings.staging_dir, settings.library_dir
    for path in (staging, library):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if staging.stat().st_dev == library.stat().st_dev:
        return {f"staging {staging} and library {library} (one file system)": staging}
    return {f"staging {staging}": staging, f"library {library}": library}
