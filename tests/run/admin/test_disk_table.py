"""How the figures of a disk are presented."""

from __future__ import annotations

import pytest

from app.run.admin.disk import (
    BLOCK_SIZES,
    KIB,
    MIB,
    Measurement,
    Mode,
    TableCell,
    block_name,
    knee,
    meaning_lines,
    plot_lines,
    table_lines,
)

RATES = (1.7, 6.5, 24.0, 85.0, 240.0, 330.0, 350.0, 358.0, 361.0)
"""MB/s by block size; the first and the last were measured on a t3.micro."""


def cell(mode: Mode, block_bytes: int, mb_per_second: float) -> TableCell:
    return TableCell(
        mode=mode, block_bytes=block_bytes, byte_count=int(mb_per_second * 1e6), seconds=1.0
    )


def measurement(label: str = "staging <&>") -> Measurement:
    cells = [
        cell(mode, size, rate)
        for mode in Mode
        for size, rate in zip(BLOCK_SIZES, RATES, strict=True)
        if not (mode.is_direct and size == KIB)
    ]
    cells += [
        TableCell(mode=mode, block_bytes=KIB, why_not="below the disk's own block size")
        for mode in (Mode.WRITE_DIRECT, Mode.READ_DIRECT)
    ]
    return Measurement(label, tuple(cells))


@pytest.mark.parametrize(
    ("block_bytes", "name"), [(KIB, "1 KiB"), (20 * MIB, "20 MiB"), (1536, "1536 B")]
)
def test_block_sizes_are_printed_as_people_write_them(block_bytes: int, name: str) -> None:
    assert block_name(block_bytes) == name


def test_the_knee_is_the_first_block_near_the_best_rate() -> None:
    cells = measurement().of(Mode.WRITE_BUFFERED)
    found = knee(cells)
    assert found is not None
    assert found.block_bytes == MIB


def test_without_measurements_there_is_no_knee() -> None:
    assert knee([]) is None


def test_the_table_has_a_row_for_each_size_and_a_column_for_each_mode() -> None:
    _, head, *rows = table_lines(measurement())
    assert all(mode.value in head for mode in Mode)
    assert [row.split()[0] for row in rows[: len(BLOCK_SIZES)]] == [
        block_name(size).split()[0] for size in BLOCK_SIZES
    ]
    assert {len(row) for row in rows[: len(BLOCK_SIZES)]} == {len(head)}


def test_the_table_says_what_could_not_be_measured() -> None:
    lines = table_lines(measurement())
    assert lines[2].split() == ["1", "KiB", "1.7", "-", "1.7", "-"]
    assert lines[-1] == "-: below the disk's own block size (up to 1 KiB)"


def test_the_explanation_gives_a_chunks_time_in_small_and_large_blocks() -> None:
    line = meaning_lines(measurement(), 20 * MIB)[0]
    assert "from 1 MiB on" in line
    assert "one 20 MB chunk: 12.34 s in blocks of 1 KiB" in line
    assert "0.058 s in blocks of 20 MiB" in line


def test_a_mode_that_could_not_be_measured_is_left_out_of_the_explanation() -> None:
    cells = [cell for cell in measurement().cells if not cell.mode.is_direct]
    lines = meaning_lines(Measurement("x", tuple(cells)), 20 * MIB)
    assert [line.partition(":")[0] for line in lines] == ["write, buffered", "read, buffered"]


def test_the_plot_fits_the_terminal_and_marks_every_mode() -> None:
    lines = plot_lines(measurement(), width=72)
    assert max(map(len, lines)) <= 72
    for mode, marker in zip(Mode, "oxw+", strict=True):
        assert any(f"{marker}{marker} {mode.value}" in line for line in lines)


def test_the_plot_rises_from_small_blocks_to_large_ones() -> None:
    cells = (cell(Mode.WRITE_DIRECT, KIB, 2.0), cell(Mode.WRITE_DIRECT, MIB, 360.0))
    lines = plot_lines(Measurement("staging", cells), width=72)
    marked = [row for row, line in enumerate(lines) if "x" in line]
    assert "x│" in lines[marked[0]], "the fast one is at the top right"
    assert "┤x" in lines[marked[-1]], "the slow one is at the bottom left"
