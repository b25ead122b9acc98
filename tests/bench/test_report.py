"""Tables, results and the documentation they go to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS, RESULTS_PAGE, ROOT
from bench.lib.plot import Plot, svg_of
from bench.lib.report import Run, Table, as_markdown, as_text, facts, save_results, update_document
from bench.lib.samples import Sample, ratio, spread

RUN = Run("upload", "python -m bench upload", {"machine": "one core", "load": "0.0"})
PLOT = Plot("Title", ())
TABLE = Table("Title", ("case", "MB/s"), [("one", "10"), ("another", "9")], ("A note.",))


def test_the_facts_name_the_machine_and_the_versions() -> None:
    assert facts().keys() >= {"date", "machine", "system", "versions", "load"}


def test_text_tables_are_aligned() -> None:
    assert as_text(TABLE).splitlines() == [
        "Title",
        "case     MB/s",
        "one      10",
        "another  9",
        "A note.",
    ]


def test_markdown_tables_have_a_head_and_rows() -> None:
    assert as_markdown(TABLE).splitlines()[2:6] == [
        "| case | MB/s |",
        "| --- | --- |",
        "| one | 10 |",
        "| another | 9 |",
    ]


@pytest.mark.parametrize(
    ("values", "text"), [([], "-"), ([7.0], "7"), ([9.0, 1.0, 5.0], "5 (1-9)")]
)
def test_a_spread_is_the_median_and_the_extremes(values: list[float], text: str) -> None:
    assert spread(values) == text


def test_ratios_are_taken_within_a_round() -> None:
    assert ratio([100.0, 10.0, 50.0], [100.0, 20.0, 25.0]) == "1.00"
    assert ratio([], []) == "-"


def test_results_hold_every_sample(tmp_path: Path) -> None:
    sample = Sample(case="one", round=0, byte_count=10, seconds=2.0)
    save_results(tmp_path / "results", RUN, [TABLE], [sample], PLOT)
    document = json.loads((tmp_path / "results" / "upload.json").read_text())
    assert document["samples"][0]["byte_count"] == 10
    assert document["tables"][0]["columns"] == ["case", "MB/s"]
    assert document["facts"] == RUN.facts
    assert (tmp_path / "results" / "upload.svg").read_text() == svg_of(PLOT)


def test_the_documentation_changes_only_between_the_markers(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("before\n<!-- bench:upload -->\nold\n<!-- /bench:upload -->\nafter\n")
    for _ in range(2):
        update_document(path, RUN, [TABLE], PLOT)
    text = path.read_text()
    assert text.startswith("before\n<!-- bench:upload -->\n")
    assert text.endswith("<!-- /bench:upload -->\nafter\n")
    assert text.count("| one | 10 |") == 1
    assert "`python -m bench upload`. machine: one core; load: 0.0." in text
    assert "old" not in text


def test_a_plot_is_saved_beside_the_document_and_shown_in_it(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("<!-- bench:upload -->\n<!-- /bench:upload -->\n")
    update_document(path, RUN, [TABLE], PLOT)
    assert (tmp_path / "plots" / "bench-upload.svg").read_text() == svg_of(PLOT)
    assert "](plots/bench-upload.svg)" in path.read_text()


def test_a_document_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("nothing")
    with pytest.raises(ValueError, match="bench:upload"):
        update_document(path, RUN, [TABLE], PLOT)
    assert path.read_text() == "nothing"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "page"),
    [(benchmark.name, benchmark.summary_page) for benchmark in BENCHMARKS if benchmark.summary_of],
)
def test_the_docs_have_a_place_for_each_summary(name: str, page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count(f"<!-- bench:{name} -->") == 1
    assert text.count(f"<!-- /bench:{name} -->") == 1


@pytest.mark.parametrize("name", [benchmark.name for benchmark in BENCHMARKS])
def test_the_results_have_a_place_for_each_benchmark(name: str) -> None:
    text = RESULTS_PAGE.read_text(encoding="utf-8")
    assert text.count(f"<!-- bench:{name} -->") == 1
    assert text.count(f"<!-- /bench:{name} -->") == 1
