"""The tables of docs/performance.md: some rows and columns of those in bench/RESULTS.md.

Each figure is a cell of another table, without its extremes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from bench.lib.report import Table, as_markdown, find_block, replace_block

Row = dict[str, str]
"""The cells of a row, by column. A ratio is named after the figure it belongs to: the column "of C"
behind "MB/s" is "MB/s of C"."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Some columns of some rows of a benchmark's tables.

    `rows` has for each label the title of a table and the cells with which its row begins.
    """

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]

    def table(self, tables: dict[str, list[Row]]) -> Table:
        """The extract; raises `KeyError` if a table, row or column is missing."""
        rows = []
        for label, (title, *start) in self.rows.items():
            row = _find(tables[title], start)
            rows.append((label, *(row[column].partition(" (")[0] for column in self.columns)))
        return Table(self.title, ("", *self.columns), rows)


def tables_of(path: Path, name: str) -> dict[str, list[Row]]:
    """All tables in the block of a benchmark, by title."""
    before, after = find_block(path, name)
    block = path.read_text(encoding="utf-8")[len(before) : -len(after)]
    found: dict[str, list[Row]] = {}
    title, columns = "", list[str]()
    for line in block.splitlines():
        if line.startswith("**"):
            title, columns = line.strip("*"), []
        elif line.startswith("| ") and not line.startswith("| ---"):
            cells = line.strip("| ").split(" | ")
            if columns:
                found[title].append(dict(zip(columns, cells, strict=True)))
            else:
                columns, found[title] = _full_names(cells), []
    return found


def as_extracts(path: Path, name: str) -> str:
    """A benchmark's block of docs/performance.md."""
    tables = tables_of(path, name)
    return "\n\n".join(as_markdown(extract.table(tables)) for extract in EXTRACTS[name])


def update_extracts(results: Path, document: Path, names: Collection[str]) -> None:
    """Write the extracts of these benchmarks into their blocks of the document."""
    for name in names:
        replace_block(document, name, as_extracts(results, name))


def _full_names(columns: list[str]) -> list[str]:
    names, figure = [], ""
    for column in columns:
        if column.startswith("of "):
            names.append(f"{figure} {column}")
        else:
            figure = column
            names.append(column)
    return names


def _find(rows: list[Row], start: list[str]) -> Row:
    for row in rows:
        if list(row.values())[: len(start)] == start:
            return row
    raise KeyError(start)


ONE, EIGHT = "1 x 1024 MiB in chunks of 20 MiB", "8 x 128 MiB in chunks of 20 MiB"
PEAK = "peak memory above idle, MiB"
UPLOAD = ("MB/s", "MB/s of tusd", "MB/s of C", "CPU s/GB", PEAK)
DOWNLOAD = ("MB/s", "CPU s/GB", "CPU s/GB of nginx", PEAK)

EXTRACTS = {
    "upload": (
        Extract(
            "One upload of 1 GiB",
            UPLOAD,
            {
                row: (ONE, row)
                for row in (
                    "Sluice, raw",
                    "Sluice, tus",
                    "nginx PUT, 1 MiB buffer",
                    "tusd",
                    "rustus",
                    "@tus/server",
                    "C, splice",
                    "Sluice, raw, synced",
                    "rustus, synced",
                    "C, splice, synced",
                )
            },
        ),
        Extract(
            "Eight uploads of 128 MiB at once",
            UPLOAD,
            {
                row: (EIGHT, row)
                for row in (
                    "Sluice, raw",
                    "nginx PUT, 1 MiB buffer",
                    "tusd",
                    "rustus",
                    "C, splice",
                    "Sluice, raw, synced",
                )
            },
        ),
    ),
    "download": (
        Extract(
            "1000 MB from the page cache",
            DOWNLOAD,
            {
                f"{server}, {job}": (f"1000 MB, {table}", server)
                for job, table in (
                    ("one file", "1 file, whole"),
                    ("eight at once", "8 files at once, whole"),
                    ("ranges of 5 MB", "1 file, ranges of 5 MB"),
                )
                for server in ("Sluice", "nginx", "tusd")
            },
        ),
    ),
    "bucket": (
        Extract(
            "480 MiB in chunks of 20 MiB",
            ("MB/s", "CPU s/GB", "CPU s/GB of tusd", "Garage's CPU s/GB", PEAK),
            {
                row: ("1 x 480 MiB in chunks of 20 MiB", row)
                for row in (
                    "Sluice, local disk, raw",
                    "Sluice, bucket, raw",
                    "Sluice, direct",
                    "tusd, bucket",
                    "@tus/s3-store",
                )
            },
        ),
    ),
    "many_uploaders": (
        Extract(
            "1000 uploads at 200 KB/s, by worker class",
            ("stored", "seconds", "GET /, ms", "failed requests", "memory above idle, MiB"),
            {
                label: ("Slow uploads at once", worker, "1000")
                for label, worker in (
                    ("Sluice", "ours"),
                    ("gunicorn's gthread", "gthread"),
                    ("gevent", "gevent"),
                )
            },
        ),
    ),
    "publishing": (
        Extract(
            "Until a video of 2 h (916 MB) plays",
            ("seconds", "CPU s", "peak memory, MiB", "more disk, of the video"),
            {row: ("2 h, 916 MB", row) for row in ("Sluice", "ffmpeg, fast start", "ffmpeg, HLS")},
        ),
    ),
}
"""By benchmark."""
