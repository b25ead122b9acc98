"""The plots: what is drawn, and that the same figures give the same file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import BENCHMARKS, PLOTS
from bench.lib.plot import OURS, Bar, Bars, Lines, Plot, panel_of, redraw, save_plot, svg_of
from bench.lib.samples import Sample, rates_of

SPACE = "{http://www.w3.org/2000/svg}"
BARS = Bars("MB/s", (Bar("tusd", (90.0, 100.0, 400.0)), Bar("A & B <c>", (200.0,), is_ours=True)))
LINES = Lines("by size", {"write": [(1024.0, 2.0), (4096.0, 8.0)]}, {"1 KiB": 1024.0})


def texts(plot: Plot) -> list[str | None]:
    return [one.text for one in ElementTree.fromstring(svg_of(plot)).iter(f"{SPACE}text")]


def test_labels_and_medians_are_text() -> None:
    found = texts(Plot("Rates", (BARS, Bars("CPU s/GB", (Bar("x", (0.261, 0.269)),), digits=2))))
    assert {"MB/s", "tusd", "100", "A & B <c>", "200", "CPU s/GB", "0.27"} <= set(found)


def test_ours_has_its_own_colour() -> None:
    assert OURS in svg_of(Plot("Rates", (BARS,)))
    assert OURS not in svg_of(Plot("Rates", (Bars("MB/s", BARS.bars[:1]),)))


@pytest.mark.parametrize("values", [(), (0.0,), (-2.0, -1.0, 4.0)])
def test_a_bar_may_have_no_value_or_none_above_zero(values: tuple[float, ...]) -> None:
    assert "absent" in texts(Plot("Rates", (Bars("MB/s", (Bar("absent", values),)),)))


def test_lines_have_ticks_and_a_legend() -> None:
    assert {"by size", "1 KiB", "write"} <= set(texts(Plot("Disk", (LINES,))))


def test_the_same_figures_give_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "plots" / "bench-x.svg"
    save_plot(Plot("Both", (BARS, LINES, BARS)), path)
    figures, svg = path.with_suffix(".json").read_text(), path.read_text()
    path.write_text("something else")
    assert redraw(path.parent) == [path]
    assert (path.with_suffix(".json").read_text(), path.read_text()) == (figures, svg)


def test_an_svg_has_neither_scripts_nor_external_references() -> None:
    root = ElementTree.fromstring(svg_of(Plot("Both", (BARS, LINES))))
    assert not list(root.iter(f"{SPACE}script"))
    targets = [value for one in root.iter() for name, value in one.items() if "href" in name]
    assert all(target.startswith("#") for target in targets)


def test_a_panel_has_a_figure_of_every_sample_and_knows_which_cases_are_ours() -> None:
    samples = [
        Sample(case="raw", round=number, byte_count=10**6, seconds=seconds)
        for number, seconds in enumerate((0.5, 0.3))
    ]
    found = panel_of("MB/s", {"Sluice": samples, "absent": []}, rates_of, ours=["Sluice"])
    assert found.bars == (Bar("Sluice", (2.0, 3.333), is_ours=True), Bar("absent", ()))


@pytest.mark.parametrize("name", [one.name for one in BENCHMARKS])
def test_the_figures_behind_each_plot_of_the_documentation_are_kept(name: str) -> None:
    assert (PLOTS / f"bench-{name}.json").exists()
    assert (PLOTS / f"bench-{name}.svg").exists()
