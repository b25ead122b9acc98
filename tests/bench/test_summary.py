"""The summary of docs/performance.md holds nothing that the tables below it do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import DOCUMENT
from bench.lib.report import as_markdown
from bench.lib.summary import LINES, cells_of, summary_table

BLOCK = """# Title
<!-- bench:upload -->

**1 x 1024 MiB in chunks of 20 MiB**

| case | MB/s |
| --- | --- |
| Sluice, tus | 1363 (877-1460) |

**Targets: 1 of 1 met**

| target | wanted | measured | met |
| --- | --- | --- | --- |
| 1 x 1024 MiB, Sluice, tus: rate, of tusd | >= 3 | 3.10 | yes |

<!-- /bench:upload -->
"""


def test_the_summary_is_that_of_the_tables_below_it() -> None:
    assert as_markdown(summary_table(DOCUMENT)) in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", LINES)
def test_every_line_finds_its_figure_and_its_target(name: str) -> None:
    cells = cells_of(DOCUMENT, name)
    for line in LINES[name]:
        assert (line.table, line.rows["Sluice"], line.column) in cells
        assert ("Targets", line.target, "met") in cells


def test_cells_are_found_by_table_row_and_column(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text(BLOCK)
    cells = cells_of(path, "upload")
    table = "1 x 1024 MiB in chunks of 20 MiB"
    assert cells[table, "Sluice, tus", "MB/s"] == "1363 (877-1460)"
    assert cells["Targets", "1 x 1024 MiB, Sluice, tus: rate, of tusd", "met"] == "yes"


def test_a_benchmark_without_a_block_is_named(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text(BLOCK)
    with pytest.raises(ValueError, match="bench:download"):
        summary_table(path)
