"""What upload and download compute from their samples: ratios, targets, and spans."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS
from bench.cases import download, line, loopback, many_files, upload
from bench.lib.harness import Benchmark, Lab
from bench.lib.plot import Bar, Bars, Plot, svg_of
from bench.lib.report import Table
from bench.lib.samples import GB, Sample, paired_ratio
from bench.peers import uploads as who
from bench.peers.disk import DD, DD_SYNCED
from bench.peers.downloads import HTTP_JOBS, NGINX, OURS, STEP_BYTES, spans
from bench.peers.uploads import Contender, Job, contenders

ONE, EIGHT = Job(1, 1024**3), Job(8, 128 * 1024**2)


def sample(case: str, number: int, seconds: float, cpu_seconds: float = 1.0) -> Sample:
    return Sample(
        case=case,
        round=number,
        byte_count=GB,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_bytes=5 * 1024**2,
    )


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Three rounds: ours takes 1 s and 0.4 CPU s, C 0.9 and 0.4, tusd 3.5, `dd` 0.8."""
    seconds = {who.RAW: 1.0, who.TUS: 1.0, who.LIMIT.name: 0.9, who.TUSD.name: 3.5}
    found = Lab(tmp_path, False, 3, 1.0)
    for number in range(3):
        found.samples += [
            sample(f"{job.name}, {name}", number, taken, 0.4)
            for job in (ONE, EIGHT)
            for name, taken in seconds.items()
        ]
        for name, taken in ((DD, 0.8), (DD_SYNCED, 2.0)):
            found.samples.append(sample(f"{ONE.name}, {name}", number, taken))
    return found


def bars(plot: Plot, label: str) -> list[Bar]:
    panels = (panel for panel in plot.panels if isinstance(panel, Bars))
    return [bar for panel in panels for bar in panel.bars if bar.label == label]


def verdicts(table: Table) -> dict[str, str]:
    return {row[0]: row[-1] for row in table.rows}


def rows(table: Table) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in table.rows}


def test_a_row_is_compared_with_the_limit_the_reference_and_dd(lab: Lab) -> None:
    found = [one for one in contenders(is_quick=True)[0] if one.name == who.RAW]
    row = rows(upload.table(lab, ONE, found))[who.RAW]
    assert row == ("1000 (1000-1000)", "0.90", "3.50", "0.80", *row[4:])
    assert row[4:] == ("0.40 (0.40-0.40)", "1.00", "5 (5-5)")


def test_synced_results_are_compared_with_synced_dd(lab: Lab) -> None:
    lab.samples += [sample(f"{ONE.name}, {who.RAW_SYNCED}", number, 2.5) for number in range(3)]
    found = [one for one in contenders(is_quick=True)[0] if one.is_synced]
    of_limit, _, of_dd, *_ = rows(upload.table(lab, ONE, found))[who.RAW_SYNCED][1:]
    assert (of_limit, of_dd) == ("-", "0.80")


def test_upload_targets_are_computed_and_missing_figures_do_not_meet_them(lab: Lab) -> None:
    found = verdicts(upload.targets(lab, ONE, EIGHT))
    assert found[f"{ONE.name}, {who.RAW}: rate, of C"] == "yes"
    assert found[f"{ONE.name}, {who.TUS}: rate, of tusd"] == "yes"
    assert found[f"{ONE.name}, {who.TUS}: rate, of rustus"] == "not measured"
    assert found[f"{EIGHT.name}, {who.RAW}: MiB of memory above idle"] == "yes"


def test_the_readme_has_what_was_measured_as_it_comes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, False, 2, 1.0)
    for name in ("Sluice, its client", "copyparty, u2c -j 16 --sz 1"):
        lab.samples.append(sample(f"20 MB, 150 ms, 1 %: {name}", 0, 10.0))
        lab.samples.append(sample(f"1000 MB: {name}", 0, 1.5, 0.7))
    lab.samples.append(sample(f"1000 MB: {loopback.CURL}", 0, 1.0))
    assert rows(line.summary(lab)) == {"Sluice, its client": ("-", "10.0", "-")}
    found = rows(loopback.summary(lab))
    assert found.keys() == {"Sluice, its client"}
    assert found["Sluice, its client"][:3] == ("1.50", "1.50", "0.70")


def test_a_slower_and_costlier_server_misses_its_targets(lab: Lab) -> None:
    for number, one in enumerate(lab.samples):
        if one.case == f"{ONE.name}, {who.RAW}":
            lab.samples[number] = sample(one.case, one.round, 1.2, 0.6)
    found = verdicts(upload.targets(lab, ONE, EIGHT))
    assert found[f"{ONE.name}, {who.RAW}: rate, of C"] == "**no**"
    assert found[f"{ONE.name}, {who.RAW}: CPU, of C"] == "**no**"


def test_the_plot_of_uploads_has_every_server_twice_for_both_jobs(lab: Lab) -> None:
    assert len(bars(upload.draw(lab), who.TUSD.name)) == 4


def test_download_targets_are_the_cost_beside_nginx(tmp_path: Path) -> None:
    lab = Lab(tmp_path, False, 2, 1.0)
    whole, *others = HTTP_JOBS
    for job in HTTP_JOBS:
        lab.samples.append(sample(f"{job}: {NGINX}", 0, 1.0, 0.2))
        lab.samples.append(sample(f"{job}: {OURS}", 0, 1.0, 0.22 if job == whole else 0.3))
    found = verdicts(download.targets(lab))
    assert found[f"{whole}: CPU, of nginx"] == "yes"
    assert [found[f"{job}: CPU, of nginx"] for job in others] == ["**no**"] * 3


def many_files_lab(folder: Path, seconds: dict[str, float]) -> Lab:
    lab = Lab(folder, False, 1, 1.0)
    lab.samples = [sample(f"8 x 3 MB, {case}", 0, taken) for case, taken in seconds.items()]
    return lab


def test_batches_are_compared_with_single_requests_and_with_equal_syncing(
    tmp_path: Path,
) -> None:
    lab = many_files_lab(
        tmp_path,
        {
            "cp": 1.0,
            "cp, then sync": 2.0,
            "1 at once, default": 10.0,
            "1 batch, default": 2.5,
            "2 batch, default": 3.0,
            "1 batch, DURABILITY=none": 1.25,
        },
    )
    assert {row[0]: row[1:] for row in many_files.targets(lab, "8 x 3 MB").rows} == {
        "1 batch, default: times as fast as 1 at once": (">= 3.65", "4.00", "yes"),
        "2 batch, default: times as fast as 1 at once": (">= 3.65", "3.33", "**no**"),
        "1 batch, default: seconds, of cp, then sync": ("<= 1.3", "1.25", "yes"),
        "2 batch, default: seconds, of cp, then sync": ("<= 1.3", "1.50", "**no**"),
        "1 batch, DURABILITY=none: seconds, of cp": ("<= 1.3", "1.25", "yes"),
        "2 batch, DURABILITY=none: seconds, of cp": ("<= 1.3", "-", "not measured"),
    }


def test_the_plot_of_many_files_has_a_panel_for_each_size(tmp_path: Path) -> None:
    lab = many_files_lab(tmp_path, {"cp": 1.0, "1 batch, default": 2.0})
    lab.samples.append(sample("4 x 180 MB, cp", 0, 3.0))
    plot = many_files.draw(lab)
    assert len(bars(plot, "cp")) == 2
    assert len(bars(plot, "1 batch, default")) == 1


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda one: one.name)
def test_every_benchmark_can_draw_a_run_that_measured_nothing(
    tmp_path: Path, benchmark: Benchmark
) -> None:
    assert svg_of(benchmark.draw(Lab(tmp_path, True, 1, 1.0))).endswith("</svg>\n")


def test_a_range_costs_the_difference_from_the_whole(tmp_path: Path) -> None:
    lab = Lab(tmp_path, False, 1, 1.0)
    whole, _, ranges, _ = HTTP_JOBS
    lab.samples = [
        sample(f"{whole}: {OURS}", 0, 1.0, 0.2),
        sample(f"{ranges}: {OURS}", 0, 1.0, 0.5),
    ]
    assert download.range_note(lab).endswith(f"{OURS} 1.5 ms.")


@pytest.mark.parametrize("length", [1, STEP_BYTES, STEP_BYTES + 1, 7 * STEP_BYTES - 1])
def test_ranges_cover_a_file_once_and_in_order(length: int) -> None:
    found = spans(length)
    assert found[0][0] == 0
    assert found[-1][1] == length
    assert all(end == start for (_, end), (start, _) in pairwise(found))
    assert all(0 < end - start <= STEP_BYTES for start, end in found)


def test_a_paired_ratio_is_none_without_pairs() -> None:
    assert paired_ratio([], [1.0]) is None
    assert paired_ratio([1.0], [0.0]) is None
    assert paired_ratio([3.0, 4.0, 8.0], [3.0, 2.0, 2.0]) == 2.0


def test_a_quick_run_skips_slow_and_most_syncing_peers() -> None:
    quick, full = (contenders(is_quick=is_quick)[0] for is_quick in (True, False))
    assert names(quick) < names(full)
    assert {who.RAW, who.FORM, who.TUS, who.RAW_SYNCED} <= names(quick)


def names(found: list[Contender]) -> set[str]:
    return {one.name for one in found}
