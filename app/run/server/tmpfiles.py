"""Reads when systemd-tmpfiles removes old files from a folder (tmpfiles.d(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FOLDERS = tuple(
    Path(name)
    for name in (
        "/etc/tmpfiles.d",
        "/run/tmpfiles.d",
        "/usr/local/lib/tmpfiles.d",
        "/usr/lib/tmpfiles.d",
    )
)
"""A file overrides those of the same name in later folders."""

_CLEANED = frozenset("dDevqQ")
_EXCLUDED = frozenset("xX")

_SPAN = re.compile(r"([0-9]+) *([a-zµ]*)")
_UNIT_SECONDS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("us", "usec"), 0.000_001),
}


@dataclass(frozen=True, slots=True)
class CleaningAge:
    """Files below `path` are removed after `seconds` without a change, as configured in `file`."""

    path: str
    seconds: float
    file: Path


def cleaning_age(folder: Path, folders: Sequence[Path] = FOLDERS) -> CleaningAge | None:
    """The age at which files in `folder` are removed; None if they stay.

    The line with the longest path that contains the folder counts.
    """
    best: CleaningAge | None = None
    longest = 0
    for file, kind, path, age in _lines(folders):
        if not folder.is_relative_to(path) or len(path) < longest:
            continue
        if kind in _EXCLUDED:
            best, longest = None, len(path)
        elif kind in _CLEANED:
            seconds = _seconds(age)
            best = None if seconds is None else CleaningAge(path, seconds, file)
            longest = len(path)
    return best


def _lines(folders: Sequence[Path]) -> Iterator[tuple[Path, str, str, str]]:
    """File, type, path and age of each line, in the order in which systemd reads the files."""
    files: dict[str, Path] = {}
    for folder in folders:
        with suppress(OSError):
            for file in folder.glob("*.conf"):
                files.setdefault(file.name, file)
    for _, file in sorted(files.items()):
        with suppress(OSError):
            for line in file.read_text("utf-8", "replace").splitlines():
                kind, path, *rest = [*line.split(), "", ""]
                if kind[:1] not in {"", "#"} and path:
                    yield file, kind[0], path, rest[3] if len(rest) > 3 else "-"


def _seconds(age: str) -> float | None:
    """The age in seconds; None for "-", which keeps the files forever."""
    text = age.lstrip("~").rpartition(":")[2].lower()  # The prefix in "am:10d" selects times.
    parts = _SPAN.findall(text)
    if not parts or any(unit not in _UNIT_SECONDS for _, unit in parts):
        return None
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in parts)
