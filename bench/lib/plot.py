"""Draws medians as horizontal bars, with the extremes as whiskers: SVG, two panels side by side."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from xml.sax.saxutils import escape

from bench.lib.samples import Sample

TOP, ROW_HEIGHT, GAP = 40, 22, 16
LEAST_LEFT, SCALE_WIDTH, RIGHT = 160, 190, 70
LETTER_WIDTH, BOLD_LETTER_WIDTH = 6.7, 7.4
"""Of the widest usual sans-serif, at 12 pixels, on average."""

OURS, OTHERS = "#b45309", "#94a3b8"


@dataclass(frozen=True, slots=True)
class Bar:
    """One case and all that was measured of it."""

    label: str
    values: Sequence[float]
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars of one unit; they share a scale, which begins at 0."""

    title: str
    bars: Sequence[Bar]
    digits: int = 0

    @property
    def height(self) -> int:
        """In pixels."""
        return TOP + ROW_HEIGHT * len(self.bars) + GAP


def panel_of(
    title: str,
    cases: Mapping[str, Sequence[Sample]],
    figures: Callable[[Sequence[Sample]], list[float]],
    *,
    ours: Container[str],
    digits: int = 0,
) -> Panel:
    """What `figures` makes of the samples of each case, by its label."""
    bars = [Bar(name, figures(samples), name in ours) for name, samples in cases.items()]
    return Panel(title, bars, digits)


def svg_bars(title: str, panels: Sequence[Panel]) -> str:
    """A whole SVG document, the panels in rows of two."""
    elements = []
    left = _left(panels)
    panel_width = left + SCALE_WIDTH + RIGHT
    y = 0
    for index in range(0, len(panels), 2):
        row = panels[index : index + 2]
        for column, panel in enumerate(row):
            elements.append(f'<g transform="translate({column * panel_width} {y})">')
            elements += [*_draw(panel, left), "</g>"]
        y += max(panel.height for panel in row)
    width = panel_width * min(2, len(panels))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" '
            f'width="{width}" height="{y}" font-family="sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{y}" fill="#fff"/>',
            *elements,
            "</svg>\n",
        ]
    )


def _left(panels: Sequence[Panel]) -> int:
    """Where the bars begin: beyond the longest label, and so far that no title is cut off."""
    labels = [len(bar.label) * LETTER_WIDTH + 24 for panel in panels for bar in panel.bars]
    titles = [len(panel.title) * BOLD_LETTER_WIDTH - SCALE_WIDTH - RIGHT + 24 for panel in panels]
    return round(max([LEAST_LEFT, *labels, *titles]))


def _draw(panel: Panel, left: int) -> list[str]:
    elements = [f'<text x="16" y="24" font-weight="bold">{escape(panel.title)}</text>']
    most = max((max(bar.values) for bar in panel.bars if bar.values), default=1.0) or 1.0
    scale = SCALE_WIDTH / most
    for index, bar in enumerate(panel.bars):
        y = TOP + ROW_HEIGHT * index
        elements.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(bar.label)}</text>'
        )
        if bar.values:
            elements += _bar(bar, x=left, y=y, scale=scale, digits=panel.digits)
    return elements


def _bar(bar: Bar, *, x: int, y: int, scale: float, digits: int) -> list[str]:
    middle = median(bar.values)
    low, high = (x + value * scale for value in (min(bar.values), max(bar.values)))
    colour = OURS if bar.is_ours else OTHERS
    return [
        f'<rect x="{x}" y="{y}" width="{middle * scale:.1f}" height="16" fill="{colour}"/>',
        f'<path d="M{low:.1f} {y + 8}H{high:.1f}" stroke="#1e293b"/>',
        f'<text x="{high + 6:.1f}" y="{y + 12}">{middle:.{digits}f}</text>',
    ]
