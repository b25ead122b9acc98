"""Measures the disk: `flask disk-bench`."""

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
from pathlib import Path
from typing import Any

import click

from app.core.numbers import bytes_in_words
from app.run.admin.opening import open_library, operator_command, services
from app.settings import Settings

KIB = 1024
MIB = 1024 * KIB
BLOCK_SIZES = (
    KIB,
    4 * KIB,
    16 * KIB,
    64 * KIB,
    256 * KIB,
    MIB,
    4 * MIB,
    10 * MIB,
    20 * MIB,
)


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


class NoDirectIo(Exception):
    """The file system cannot bypass the page cache, or not with blocks this small."""


def measure(
    folder: Path, bounds: Bounds, block_sizes: Sequence[int] = BLOCK_SIZES
) -> Iterator[TableCell]:
    """Yields the cells of a folder, by mode and increasing block size."""
    with _nameless_file(folder, _room(bounds, max(block_sizes))) as written:
        _fill(written, _room(bounds, max(block_sizes)))
        for mode in Mode:
            for block_bytes in block_sizes:
                if mode.is_write:
                    yield _measure_writing(folder, mode, block_bytes, bounds)
                else:
                    yield _measure_cell(written, mode, block_bytes, bounds)


def needed_bytes(bounds: Bounds) -> int:
    """Disk space that `measure` needs."""
    return 2 * _room(bounds, max(BLOCK_SIZES))


def _room(bounds: Bounds, largest_block: int) -> int:
    return max(bounds.byte_count, largest_block)


@contextmanager
def _nameless_file(folder: Path, length: int) -> Iterator[int]:
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, length)
        yield file.fileno()


def _fill(descriptor: int, length: int) -> None:
    """Write all blocks: reserved blocks never written read as zeros without reaching the disk."""
    block = memoryview(os.urandom(MIB))
    for position in range(0, length, MIB):
        os.pwrite(descriptor, block[: length - position], position)
    os.fsync(descriptor)


def _measure_writing(folder: Path, mode: Mode, block_bytes: int, bounds: Bounds) -> TableCell:
    """Measure in a new file: to overwrite part of a page, the kernel would read it first."""
    with _nameless_file(folder, _room(bounds, block_bytes)) as descriptor:
        return _measure_cell(descriptor, mode, block_bytes, bounds)


def _measure_cell(descriptor: int, mode: Mode, block_bytes: int, bounds: Bounds) -> TableCell:
    try:
        with _direct(descriptor, mode), _aligned_block(block_bytes) as block:
            byte_count, seconds = _move_blocks(descriptor, mode, block, bounds)
    except NoDirectIo as reason:
        return TableCell(mode=mode, block_bytes=block_bytes, why_not=str(reason))
    return TableCell(mode=mode, block_bytes=block_bytes, byte_count=byte_count, seconds=seconds)


def _move_blocks(
    descriptor: int, mode: Mode, block: mmap.mmap, bounds: Bounds
) -> tuple[int, float]:
    """Read or write blocks from the start of the file; returns bytes and seconds."""
    size = len(block)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    moved, started = 0, time.perf_counter()
    deadline = started + bounds.seconds
    while moved == 0 or (moved + size <= bounds.byte_count and time.perf_counter() < deadline):
        moved += _move(descriptor, mode, block, moved)
    if mode is Mode.WRITE_BUFFERED:
        os.fsync(descriptor)
    return moved, time.perf_counter() - started


def _move(descriptor: int, mode: Mode, block: mmap.mmap, position: int) -> int:
    try:
        if mode.is_write:
            return os.pwrite(descriptor, block, position)
        return os.preadv(descriptor, [block], position)
    except OSError as error:
        if mode.is_direct and error.errno == errno.EINVAL:
            raise NoDirectIo("below the disk's own block size") from error
        raise


@contextmanager
def _direct(descriptor: int, mode: Mode) -> Iterator[None]:
    """Bypass the page cache, if the mode says so."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if mode.is_direct:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        except OSError as error:
            raise NoDirectIo("the file system has no direct I/O") from error
    try:
        yield
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


@contextmanager
def _aligned_block(block_bytes: int) -> Iterator[mmap.mmap]:
    """Page-aligned memory, as direct I/O requires, already touched and not compressible."""
    with mmap.mmap(-1, block_bytes) as block:
        for position in range(0, block_bytes, MIB):
            block[position : position + MIB] = os.urandom(min(MIB, block_bytes - position))
        yield block


# ---- disk table ----------------------------------------------------------------------------------

# Presentation of disk measurements: table, plot, knee, time per chunk. No Flask.


KNEE_SHARE = 0.8
"""The knee is the smallest block that reaches this share of the best rate: beyond it, larger
blocks cost memory and win little."""

SERVER_BLOCK_BYTES = MIB
"""The measured size nearest to the server's block size (ingest/copy.py)."""

PLOT_COLUMNS, PLOT_ROWS = 100, 20
"""The largest plot; a narrower terminal gets a narrower one."""

RATE_TICKS = [digit * 10**power for power in range(5) for digit in (1, 2, 5)]
"""MB/s."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """All cells of one folder, which `label` names."""

    label: str
    cells: tuple[TableCell, ...]

    def of(self, mode: Mode) -> list[TableCell]:
        """The measured cells of a mode, by increasing block size."""
        return [cell for cell in self.cells if cell.mode is mode and cell.bytes_per_second]

    @property
    def block_sizes(self) -> list[int]:
        """All block sizes in increasing order."""
        return sorted({cell.block_bytes for cell in self.cells})


def block_name(block_bytes: int) -> str:
    """The size in its largest whole unit."""
    if block_bytes % MIB == 0:
        return f"{block_bytes // MIB} MiB"
    return f"{block_bytes // KIB} KiB" if block_bytes % KIB == 0 else f"{block_bytes} B"


def knee(cells: Sequence[TableCell]) -> TableCell | None:
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
    """The knee of each mode, and the time per chunk with the smallest, our and the best blocks."""
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


def _telling(cells: list[TableCell]) -> list[TableCell]:
    """The smallest block, the server's, and the fastest, each once."""
    nearest = min(cells, key=lambda cell: abs(cell.block_bytes - SERVER_BLOCK_BYTES))
    fastest = max(cells, key=lambda cell: cell.bytes_per_second or 0.0)
    chosen = {cell.block_bytes: cell for cell in (cells[0], nearest, fastest)}
    return [chosen[size] for size in sorted(chosen)]


def _chunk_time(cell: TableCell, chunk_bytes: int) -> str:
    seconds = chunk_bytes / (cell.bytes_per_second or 1.0)
    text = f"{seconds:.3f}" if seconds < 0.1 else f"{seconds:.2f}"
    return f"{text} s in blocks of {block_name(cell.block_bytes)}"


def _rate(cell: TableCell) -> str:
    if cell.bytes_per_second is None:
        return "-"
    rate = _mb_per_second(cell)
    return f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"


def _mb_per_second(cell: TableCell) -> float:
    return (cell.bytes_per_second or 0.0) / 1e6


# ---- disk commands -------------------------------------------------------------------------------

# `flask --app wsgi disk-bench`: parse, measure, print.


SPARE_BYTES = 64 * MIB
"""Space to leave free in addition to the measurement's: uploads may be running."""

LONGEST_SECONDS = 3600.0

EXISTING_FOLDER = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)


def _finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse NaN, which click's ranges accept."""
    if math.isnan(value):
        raise click.BadParameter("must be a number")
    return value


@operator_command("disk-bench")
@click.option(
    "--folder",
    type=EXISTING_FOLDER,
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
    folders = {str(folder): folder} if folder else _folders(settings)
    bounds = Bounds(byte_count, seconds)
    measurements = [_measure(label, path, bounds) for label, path in folders.items()]
    if is_json:
        click.echo(json.dumps([_document(one) for one in measurements], indent=2))
    else:
        for measurement in measurements:
            _print(measurement, settings.chunk_bytes)


def _folders(settings: Settings) -> dict[str, Path]:
    """Staging and library, or only staging if the library is on the same file system."""
    for path in (settings.staging_dir, settings.library_dir):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging, library = settings.staging_dir, settings.library_dir
    if staging.stat().st_dev == library.stat().st_dev:
        return {f"staging {staging} and library {library} (one file system)": staging}
    return {f"staging {staging}": staging, f"library {library}": library}


def _measure(label: str, folder: Path, bounds: Bounds) -> Measurement:
    needed = needed_bytes(bounds) + SPARE_BYTES
    if shutil.disk_usage(folder).free < needed:
        raise click.ClickException(f"{folder} lacks the {bytes_in_words(needed)} that this needs.")
    click.echo(f"measuring {label} ...", err=True)
    try:
        return Measurement(label, tuple(measure(folder, bounds)))
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror}") from error


def _print(measurement: Measurement, chunk_bytes: int) -> None:
    columns = shutil.get_terminal_size().columns
    parts = (
        table_lines(measurement),
        plot_lines(measurement, columns),
        meaning_lines(measurement, chunk_bytes),
    )
    for lines in parts:
        click.echo("\n".join([*lines, ""]))


def _document(measurement: Measurement) -> dict[str, Any]:
    return {"folder": measurement.label, "cells": [_cell(cell) for cell in measurement.cells]}


def _cell(cell: TableCell) -> dict[str, Any]:
    return {
        "mode": cell.mode.value,
        "block_bytes": cell.block_bytes,
        "bytes": cell.byte_count,
        "seconds": cell.seconds,
        "bytes_per_second": cell.bytes_per_second,
        "why_not": cell.why_not or None,
    }
