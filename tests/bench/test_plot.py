"""The bars that stand for medians."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.lib.plot import Bar, Panel, panel_of, svg_bars
from bench.lib.samples import Sample, rates_of

SPACE = "{http://www.w3.org/2000/svg}"


def drawn(*panels: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(svg_bars("Rates", panels))


def widths(element: ElementTree.Element) -> list[float]:
    """Of the bars, without the white ground."""
    return [float(one.attrib["width"]) for one in element.iter(f"{SPACE}rect")][1:]


def texts(element: ElementTree.Element) -> list[str | None]:
    return [one.text for one in element.iter(f"{SPACE}text")]


def test_a_bar_is_as_long_as_its_median_within_the_panel() -> None:
    found = widths(drawn(Panel("MB/s", [Bar("one", [90, 100, 400]), Bar("two", [200])])))
    assert found[1] == pytest.approx(2 * found[0], rel=0.01)


def test_values_and_labels_are_written_out() -> None:
    panel = Panel("CPU s/GB", [Bar("A & B <c>", [0.261, 0.269])], digits=2)
    assert texts(drawn(panel)) == ["CPU s/GB", "A & B <c>", "0.27"]


def test_a_case_without_samples_has_a_label_and_no_bar() -> None:
    picture = drawn(Panel("MB/s", [Bar("absent", [])]))
    assert widths(picture) == []
    assert "absent" in texts(picture)


def test_nothing_lies_outside_the_picture() -> None:
    panels = [Panel(str(count), [Bar("x", [1.0])] * count) for count in (3, 9, 5)]
    picture = drawn(*panels)
    assert float(picture.attrib["height"]) == panels[1].height + panels[2].height
    ours = widths(drawn(Panel("x", [Bar("Sluice", [5.0], is_ours=True), Bar("other", [5.0])])))
    assert ours[0] == ours[1]


@pytest.mark.parametrize("label", ["short", "W" * 60])
def test_a_label_begins_within_its_panel_however_long_it_is(label: str) -> None:
    picture = drawn(Panel("MB/s", [Bar(label, [1.0])]), Panel("s", [Bar("other", [1.0])]))
    place = next(one for one in picture.iter(f"{SPACE}text") if one.text == label)
    assert float(place.attrib["x"]) >= 6 * len(label)
    assert float(picture.attrib["width"]) >= 2 * 6 * len(label)


def test_a_panel_has_a_figure_of_every_sample_and_knows_which_cases_are_ours() -> None:
    samples = [
        Sample(case="raw", round=number, byte_count=10**6, seconds=seconds)
        for number, seconds in enumerate((0.5, 1.0))
    ]
    found = panel_of("MB/s", {"Sluice": samples, "absent": []}, rates_of, ours=["Sluice"])
    assert found.bars == [Bar("Sluice", [2.0, 1.0], is_ours=True), Bar("absent", [])]
