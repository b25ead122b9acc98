"""The tables of docs/performance.md hold nothing that bench/RESULTS.md does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import DOCUMENT, RESULTS_PAGE
from bench.lib.extracts import EXTRACTS, Extract, as_extracts, tables_of

BLOCK = """# Title
<!-- bench:upload -->

**One, two: three**

| case | MB/s | of C | CPU s/GB | of C |
| --- | --- | --- | --- | --- |
| raw | 1363 (877-1460) | 0.97 | 0.61 | 1.21 |
| raw, synced | 778 | 1.10 | 0.92 | 1.62 |

<!-- /bench:upload -->
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "RESULTS.md"
    path.write_text(BLOCK)
    return path


@pytest.mark.parametrize("name", EXTRACTS)
def test_the_document_has_the_figures_of_the_results(name: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    block = f"<!-- bench:{name} -->\n\n{as_extracts(RESULTS_PAGE, name)}\n\n<!-- /bench:{name} -->"
    assert block in text


def test_ratios_are_named_after_their_figures(path: Path) -> None:
    first, _ = tables_of(path, "upload")["One, two: three"]
    assert (first["MB/s of C"], first["CPU s/GB of C"]) == ("0.97", "1.21")


def test_an_extract_has_its_rows_and_columns_without_extremes(path: Path) -> None:
    extract = Extract("Title", ("MB/s",), {"one": ("One, two: three", "raw", "1363 (877-1460)")})
    assert extract.table(tables_of(path, "upload")).rows == [("one", "1363")]


def test_an_extract_of_a_missing_row_fails(path: Path) -> None:
    extract = Extract("Title", ("MB/s",), {"one": ("One, two: three", "tus")})
    with pytest.raises(KeyError, match="tus"):
        extract.table(tables_of(path, "upload"))


def test_a_benchmark_without_a_block_is_named(path: Path) -> None:
    with pytest.raises(ValueError, match="bench:download"):
        tables_of(path, "download")
