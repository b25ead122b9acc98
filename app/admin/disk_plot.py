"""Draws what was measured as SVG: block size across, MB/s up, both logarithmic. No Flask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from app.admin.disk_bench import Cell, Mode
from app.admin.disk_table import Measurement, block_name

WIDTH, PANEL_HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 160, 44, 48

COLOURS = {
    Mode.WRITE_BUFFERED: "#b45309",
    Mode.WRITE_DIRECT: "#dc2626",
    Mode.READ_BUFFERED: "#0e7490",
    Mode.READ_DIRECT: "#1d4ed8",
}


def svg_plot(measurements: Sequence[Measurement]) -> str:
    """A whole SVG document, one panel a measurement."""
    height = PANEL_HEIGHT * len(measurements)
    panels = [
        f'<g transform="translate(0 {PANEL_HEIGHT * index})">{_Panel(one).draw()}</g>'
        for index, one in enumerate(measurements)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
            "<title>Speed of the disk by block size</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *panels,
            "</svg>\n",
        ]
    )


class _Panel:
    """The axes and lines of one measurement."""

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement
        self._sizes = [math.log2(size) for size in measurement.block_sizes]
        rates = [cell.bytes_per_second for cell in measurement.cells if cell.bytes_per_second]
        self._low = math.floor(math.log10(min(rates, default=1e6) / 1e6))
        self._high = max(self._low + 1, math.ceil(math.log10(max(rates, default=1e7) / 1e6)))

    def draw(self) -> str:
        """The panel's elements."""
        return "\n".join([self._heading(), *self._grid(), *self._lines()])

    def _x(self, block_bytes: int) -> float:
        low, high = self._sizes[0], max(self._sizes[-1], self._sizes[0] + 1)
        share = (math.log2(block_bytes) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _y(self, mb_per_second: float) -> float:
        share = (math.log10(mb_per_second) - self._low) / (self._high - self._low)
        return PANEL_HEIGHT - BOTTOM - share * (PANEL_HEIGHT - TOP - BOTTOM)

    def _heading(self) -> str:
        label = escape(self._measurement.label)
        return f'<text x="{LEFT}" y="24" font-weight="bold">{label}: MB/s by block size</text>'

    def _grid(self) -> list[str]:
        right, bottom = WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM
        elements = []
        for power in range(self._low, self._high + 1):
            y = self._y(10**power)
            elements.append(
                f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**power:g}</text>'
            )
        for size in self._measurement.block_sizes:
            x = self._x(size)
            elements.append(
                f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#eee"/>'
                f'<text transform="translate({x:.1f} {bottom + 14}) rotate(-35)" '
                f'text-anchor="end">{block_name(size)}</text>'
            )
        return elements

    def _lines(self) -> list[str]:
        elements = []
        for index, mode in enumerate(Mode):
            cells = self._measurement.of(mode)
            y = TOP + 12 + 20 * index
            elements.append(
                f'<text x="{WIDTH - RIGHT + 16}" y="{y}" fill="{COLOURS[mode]}">{mode.value}</text>'
            )
            elements += self._line(cells, COLOURS[mode])
        return elements

    def _line(self, cells: list[Cell], colour: str) -> list[str]:
        points = [
            (self._x(cell.block_bytes), self._y((cell.bytes_per_second or 1e6) / 1e6))
            for cell in cells
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        line = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        return [line, *dots] if points else []
