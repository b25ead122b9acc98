"""Tables for the terminal, for the documentation, and results as JSON."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.lib.plot import Plot, save_plot, svg_of
from bench.lib.samples import Sample

TARGET_COLUMNS = ("target", "wanted", "measured", "met")
PACKAGES = ("flask", "gunicorn", "werkzeug", "sqlalchemy")


@dataclass(frozen=True, slots=True)
class Run:
    """One benchmark's name, the command that ran it, and the machine as it was before."""

    name: str
    command: str
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title; notes stand below."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One figure and its limit; `measured` is None if something it needs is missing."""

    what: str
    measured: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether there is a figure and it is within the limits."""
        if self.measured is None:
            return False
        is_high_enough = self.at_least is None or self.measured >= self.at_least
        return is_high_enough and (self.at_most is None or self.measured <= self.at_most)

    @property
    def row(self) -> tuple[str, ...]:
        """As in the table."""
        wanted = [f">= {self.at_least:g}"] if self.at_least is not None else []
        wanted += [f"<= {self.at_most:g}"] if self.at_most is not None else []
        if self.measured is None:
            return (self.what, " and ".join(wanted), "-", "not measured")
        met = "yes" if self.is_met else "**no**"
        return (self.what, " and ".join(wanted), f"{self.measured:.2f}", met)


def target_table(targets: Sequence[Target], notes: tuple[str, ...] = ()) -> Table:
    """All targets of a benchmark, with a count."""
    met = sum(target.is_met for target in targets)
    title = f"Targets: {met} of {len(targets)} met"
    return Table(title, TARGET_COLUMNS, [target.row for target in targets], notes)


def facts() -> dict[str, str]:
    """The machine and the versions."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{len(os.sched_getaffinity(0))} cores ({_cpu_model()}), "
        f"{total / 1024**3:.0f} GiB memory",
        "system": f"Linux {platform.release().split('-')[0]}, {platform.python_implementation()} "
        f"{platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
        "load": f"{os.getloadavg()[0]:.1f} before the run",
    }


def as_text(table: Table) -> str:
    """The table with aligned columns."""
    lines = [table.columns, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.columns))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([table.title, *text, *table.notes])


def as_markdown(table: Table) -> str:
    """The table as the documentation has it."""
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"\n\n{note}" for note in table.notes)
    return f"**{table.title}**\n\n{rows}{notes}"


def save_results(
    folder: Path, run: Run, tables: Sequence[Table], samples: Sequence[Sample], plot: Plot
) -> None:
    """Write `<name>.json`: machine, tables, every single sample; and the plot, `<name>.svg`."""
    document = {
        **asdict(run),
        "tables": [asdict(table) for table in tables],
        "samples": [asdict(sample) for sample in samples],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{run.name}.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    (folder / f"{run.name}.svg").write_text(svg_of(plot), encoding="utf-8")


def update_document(path: Path, run: Run, tables: Sequence[Table], plot: Plot) -> None:
    """Put the tables into the document's block for the benchmark.

    The plot goes to plots/ beside the document, with its samples, and is shown above the tables.
    """
    measured = "; ".join(f"{key}: {value}" for key, value in run.facts.items())
    picture = path.parent / "plots" / f"bench-{run.name}.svg"
    parts = [f"`{run.command}`. {measured}.", f"![Medians and extremes](plots/{picture.name})"]
    replace_block(path, run.name, "\n\n".join([*parts, *map(as_markdown, tables)]))
    save_plot(plot, picture)


def replace_block(path: Path, name: str, content: str) -> None:
    """Put text into the document's block of that name; raises as `find_block` does."""
    before, after = find_block(path, name)
    path.write_text(f"{before}\n\n{content}\n\n{after}", encoding="utf-8")


def find_block(path: Path, name: str) -> tuple[str, str]:
    """A document up to the marker `<!-- bench:name -->`, and from `<!-- /bench:name -->` on.

    Raises `ValueError` where it has none.
    """
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no {begin} ... {end}")
    return before + begin, end + after


def _cpu_model() -> str:
    found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()
