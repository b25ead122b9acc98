"""The table at the top of docs/performance.md, put together from the tables below it.

Nothing is measured or copied by hand: a figure of the summary is a cell of another table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.lib.report import Table, as_markdown, find_block, replace_block

NAME = "summary"
SERVERS = ("Sluice", "tusd", "rustus", "nginx")
COLUMNS = ("what", *SERVERS, "target", "reached", "met")

Cells = dict[tuple[str, str, str], str]
"""The cells of a document's tables, by the table's title, the row's first cell, and the column."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a column of a table, the rows that stand for the servers, and a target's row."""

    what: str
    table: str
    column: str
    rows: dict[str, str]
    target: str


def summary_table(path: Path) -> Table:
    """The lines of all benchmarks."""
    rows = []
    for name, lines in LINES.items():
        cells = cells_of(path, name)
        rows += [_row(line, cells) for line in lines]
    met = sum(row[-1] == "yes" for row in rows)
    note = f"{met} of {len(rows)} targets are met. Medians; what is reached is a ratio, as below."
    return Table("Summary", COLUMNS, rows, (note,))


def cells_of(path: Path, name: str) -> Cells:
    """All cells that a benchmark has written into the document; its targets' table is "Targets"."""
    before, after = find_block(path, name)
    block = path.read_text(encoding="utf-8")[len(before) : -len(after)]
    found: Cells = {}
    title, columns = "", [""]
    for line in block.splitlines():
        if line.startswith("**"):
            title, columns = line.strip("*").partition(":")[0], []
        elif line.startswith("| ") and not line.startswith("| ---"):
            cells = line.strip("| ").split(" | ")
            columns = columns or cells
            pairs = zip(columns, cells, strict=False)
            found |= {(title, cells[0], column): cell for column, cell in pairs}
    return found


def update_summary(path: Path) -> None:
    """Write the summary into its block of the document."""
    replace_block(path, NAME, as_markdown(summary_table(path)))


def _row(line: Line, cells: Cells) -> tuple[str, ...]:
    figures = (
        cells.get((line.table, line.rows.get(server, ""), line.column), "-").partition(" (")[0]
        for server in SERVERS
    )
    wanted, reached, met = (
        cells.get(("Targets", line.target, column), "-") for column in ("wanted", "measured", "met")
    )
    kind = line.target.rpartition(": ")[2]
    return (line.what, *figures, f"{kind} {wanted}", reached, met)


ONE, EIGHT = "1 x 1024 MiB", "8 x 128 MiB"
RATE, CPU, MEMORY = "MB/s", "CPU s/GB", "peak memory above idle, MiB"
BY_TUS = {"Sluice": "Sluice, tus", "tusd": "tusd", "rustus": "rustus"}
RAW = {
    "Sluice": "Sluice, raw",
    "tusd": "tusd",
    "rustus": "rustus",
    "nginx": "nginx PUT, 1 MiB buffer",
}


def _upload(what: str, job: str, column: str, rows: dict[str, str], target: str) -> Line:
    table = f"{job} in chunks of 20 MiB"
    unit = "MiB of memory" if column == MEMORY else column
    return Line(f"{what}, {unit}", table, column, rows, f"{job}, {target}")


def _download(job: str) -> Line:
    rows = {server: server for server in SERVERS}
    return Line(f"downloads: {job}, {CPU}", f"1000 MB, {job}", CPU, rows, f"{job}: CPU, of nginx")


def _files(case: str, target: str) -> Line:
    rows = {"Sluice": case}
    return Line(
        f"1344 files of 3 MB: {case}, seconds", "1344 x 3 MB", "seconds", rows, f"{case}: {target}"
    )


LINES = {
    "upload": [
        _upload("one upload by tus", ONE, RATE, BY_TUS, "Sluice, tus: rate, of tusd"),
        _upload("one upload by tus", ONE, RATE, BY_TUS, "Sluice, tus: rate, of rustus"),
        _upload("one upload, raw", ONE, RATE, RAW, "Sluice, raw: rate, of nginx's best"),
        _upload("one upload, raw", ONE, RATE, RAW, "Sluice, raw: rate, of C"),
        _upload("one upload, raw", ONE, CPU, RAW, "Sluice, raw: CPU, of C"),
        _upload(
            "one upload, raw, synced",
            ONE,
            RATE,
            {"Sluice": "Sluice, raw, synced", "rustus": "rustus, synced"},
            "Sluice, raw, synced: rate, of dd bs=20M conv=fdatasync",
        ),
        _upload(
            "one upload, form", ONE, CPU, {"Sluice": "Sluice, form"}, "Sluice, form: CPU, of raw"
        ),
        _upload("eight uploads, raw", EIGHT, RATE, RAW, "Sluice, raw: rate, of C"),
        _upload("eight uploads, raw", EIGHT, CPU, RAW, "Sluice, raw: CPU, of C"),
        _upload("eight uploads, raw", EIGHT, MEMORY, RAW, "Sluice, raw: MiB of memory above idle"),
    ],
    "download": [
        _download("1 file, whole"),
        _download("8 files at once, whole"),
        _download("1 file, ranges of 5 MB"),
        _download("8 files at once, ranges of 5 MB"),
    ],
    "many_files": [
        _files("1 batch, default", "times as fast as 1 at once"),
        _files("2 batch, default", "times as fast as 1 at once"),
        _files("1 batch, default", "seconds, of cp, then sync"),
        _files("2 batch, default", "seconds, of cp, then sync"),
        _files("1 batch, DURABILITY=none", "seconds, of cp"),
        _files("2 batch, DURABILITY=none", "seconds, of cp"),
    ],
}
