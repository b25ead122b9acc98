"""`flask --app wsgi disk-bench`: parse, measure, print."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import click

from app.core.numbers import bytes_in_words
from app.run.admin.disk_bench import MIB, Bounds, Cell, measure, needed_bytes
from app.run.admin.disk_table import Measurement, meaning_lines, plot_lines, table_lines
from app.run.admin.opening import open_library, operator_command, services
from app.settings import Settings

SPARE_BYTES = 64 * MIB
"""Stays free beside what the measurement needs: uploads may be running."""

LONGEST_SECONDS = 3600.0

EXISTING_FOLDER = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)


def _finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """As click's ranges let NaN pass."""
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
    """Staging and library, or only staging where the library is on the same file system."""
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


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "mode": cell.mode.value,
        "block_bytes": cell.block_bytes,
        "bytes": cell.byte_count,
        "seconds": cell.seconds,
        "bytes_per_second": cell.bytes_per_second,
        "why_not": cell.why_not or None,
    }
