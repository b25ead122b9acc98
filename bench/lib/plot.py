"""Draws with matplotlib: medians and extremes as horizontal bars, and lines with two log axes.

A plot is a value: its figures are kept as JSON beside the SVG, and `python -m bench --redraw` draws
all of them again without measuring.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.lib.samples import Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

OURS, OTHERS, EXTREMES, GRID, TEXT = "#b45309", "#94a3b8", "#1e293b", "#e2e8f0", "#0f172a"
LINE_COLOURS = ("#b45309", "#dc2626", "#0e7490", "#1d4ed8")

PANEL_INCHES = 5.6
BAR_INCHES, AROUND_BARS_INCHES = 0.25, 0.65
LINES_INCHES = 3.6

STYLE: dict[RcKeyType, Any] = {
    "axes.edgecolor": EXTREMES,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.facecolor": "white",  # Readable on a dark page, too.
    "font.family": "DejaVu Sans",  # matplotlib's own: the layout is the same on every machine.
    "font.size": 10,
    "svg.fonttype": "none",  # Text stays text.
    "svg.hashsalt": "sluice",  # Ids are random otherwise, and every drawing a different file.
    "text.color": TEXT,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One case and all that was measured of it; without values it has a label only."""

    label: str
    values: tuple[float, ...]
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one unit; they share a scale, which begins at 0."""

    title: str
    bars: tuple[Bar, ...]
    digits: int = 0

    @property
    def inches(self) -> float:
        """The height of the panel."""
        return AROUND_BARS_INCHES + BAR_INCHES * max(1, len(self.bars))


@dataclass(frozen=True, slots=True)
class Lines:
    """Points (x, y) by label, both axes logarithmic; `ticks` names places of the x axis."""

    title: str
    lines: dict[str, list[tuple[float, float]]]
    ticks: dict[str, float]

    @property
    def inches(self) -> float:
        """The height of the panel."""
        return LINES_INCHES


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels in rows of two."""

    title: str
    panels: tuple[Bars | Lines, ...]


def panel_of(
    title: str,
    cases: Mapping[str, Sequence[Sample]],
    figures: Callable[[Sequence[Sample]], Iterable[float]],
    *,
    ours: Container[str],
    digits: int = 0,
) -> Bars:
    """What `figures` makes of the samples of each case, by its label, to four digits."""
    bars = (
        Bar(name, tuple(float(f"{value:.4g}") for value in figures(samples)), name in ours)
        for name, samples in cases.items()
    )
    return Bars(title, tuple(bars), digits)


def svg_of(plot: Plot) -> str:
    """The plot as SVG; the same text for the same plot."""
    rows = [plot.panels[start : start + 2] for start in range(0, len(plot.panels), 2)]
    heights = [max(panel.inches for panel in row) for row in rows] or [1.0]
    columns = min(2, len(plot.panels)) or 1
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PANEL_INCHES * columns, sum(heights)), layout="constrained")
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
        for index, panel in enumerate(plot.panels):
            row, column = divmod(index, 2)
            _draw(panel, figure.add_subplot(grid[row, column]), inches=heights[row])
        text = io.StringIO()
        about = {"Title": plot.title, "Date": None, "Creator": None}
        figure.savefig(text, format="svg", metadata=about)
    return _with_numbered_ids(re.sub(r" +$", "", text.getvalue(), flags=re.MULTILINE))


def _with_numbered_ids(svg: str) -> str:
    """Matplotlib makes ids of clips and markers from addresses in memory, now and then."""
    ids = dict.fromkeys(re.findall(r'id="([mp][0-9a-f]{10})"', svg))
    numbers = {found: f"{found[0]}{number}" for number, found in enumerate(ids)}
    return re.sub(r"\b[mp][0-9a-f]{10}\b", lambda found: numbers.get(found[0], found[0]), svg)


def save_plot(plot: Plot, path: Path) -> None:
    """Write the SVG to `path`, and the figures beside it as JSON."""
    figures = json.dumps(asdict(plot), indent=1, ensure_ascii=False)
    one_line_lists = re.sub(r"\[[^][{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]), figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(one_line_lists + "\n", encoding="utf-8")
    path.write_text(svg_of(plot), encoding="utf-8")


def redraw(folder: Path) -> list[Path]:
    """Draw every plot again whose figures are in a folder; the SVG files."""
    found = sorted(folder.glob("*.json"))
    for path in found:
        save_plot(_plot(json.loads(path.read_text(encoding="utf-8"))), path.with_suffix(".svg"))
    return [path.with_suffix(".svg") for path in found]


def _plot(document: dict[str, Any]) -> Plot:
    return Plot(document["title"], tuple(map(_panel, document["panels"])))


def _panel(document: dict[str, Any]) -> Bars | Lines:
    if "lines" in document:
        return Lines(**document)
    bars = (Bar(one["label"], tuple(one["values"]), one["is_ours"]) for one in document["bars"])
    return Bars(document["title"], tuple(bars), document["digits"])


def _draw(panel: Bars | Lines, axes: Axes, *, inches: float) -> None:
    axes.set_title(panel.title)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=TEXT)
    if isinstance(panel, Bars):
        _draw_bars(panel, axes)
        # A panel beside a longer one keeps its bars as thin as that one's.
        axes.set_ylim(round((inches - AROUND_BARS_INCHES) / BAR_INCHES) - 0.5, -0.5)
    else:
        _draw_lines(panel, axes)


def _draw_bars(panel: Bars, axes: Axes) -> None:
    axes.grid(axis="x", color=GRID)
    axes.spines["bottom"].set_visible(False)
    axes.set_yticks(range(len(panel.bars)), [bar.label for bar in panel.bars])
    for place, bar in enumerate(panel.bars):
        if not bar.values:
            continue
        middle, lowest, highest = median(bar.values), min(bar.values), max(bar.values)
        axes.barh(place, middle, height=0.7, color=OURS if bar.is_ours else OTHERS)
        axes.hlines(place, lowest, highest, color=EXTREMES, linewidth=1)
        axes.annotate(
            f"{middle:.{panel.digits}f}",
            (max(highest, 0), place),
            xytext=(5, 0),
            textcoords="offset points",
            verticalalignment="center",
        )
    axes.set_xlim(left=min([0.0, *(min(bar.values) for bar in panel.bars if bar.values)]))


def _draw_lines(panel: Lines, axes: Axes) -> None:
    axes.grid(color=GRID)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(
        list(panel.ticks.values()), list(panel.ticks), rotation=35, horizontalalignment="right"
    )
    axes.xaxis.set_minor_locator(NullLocator())
    for (label, points), colour in zip(panel.lines.items(), LINE_COLOURS, strict=False):
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4, label=label)
    if panel.lines:
        axes.legend(frameon=False)
