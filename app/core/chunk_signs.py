"""Recognizes a chunk of a larger file by the names and numbers of the fields around it.

For uploads in an unknown dialect. A chunk stored as a whole file is silent data loss: its client
goes on to the next chunk and reports success. A whole file, on the other hand, may come with any
fields a page likes, even `index` or `part`. So a single name counts only if it contains `chunk`;
others must come in pairs, a position and a total, that do not fit a whole file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from app.core.numbers import parse_bounded

_HEADER = re.compile(
    r"chunk|^content-range$|^uploader-"
    r"|^(x-)?(upload|file|part|blob|slice|segment)-?(offset|range|part|index|number)$"
)
"""Headers that no client sends with a whole file."""

_CHUNK = re.compile(r"chunk|^(blob|slice|segment|fragment)(index|number|count|s)$")

_POSITION = re.compile(
    r"^(current|upload|file|byte|data)?"
    r"((part|block|piece|slice|segment|blob|packet)(index|idx|number|num|no|nr)?"
    r"|index|idx|offset|position)$"
)

_TOTAL = re.compile(
    r"^total|total$|count$|(part|chunk|block|piece|slice|segment|packet)s$"
    r"|^(file|full|whole)?(size|length|bytes)$"
)

_STARTS, _ENDS = {"start", "from", "rangestart", "bytestart"}, {"end", "to", "rangeend", "byteend"}

_NOTHING = {"", "false", "no", "off", "null", "none", "undefined"}


def chunk_signs(fields: Mapping[str, str], headers: Iterable[str], length: int | None) -> list[str]:
    """Names that show that a file of `length` bytes is a chunk; empty if it may be whole.

    `length` is None if the form has several files.
    """
    told = [name for name in headers if _HEADER.search(name.lower())]
    plain = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in fields}
    parsed = {name: parse_bounded(value) for name, value in fields.items()}
    numbers = {name: number for name, number in parsed.items() if number is not None}
    said = [name for name in fields if fields[name].strip().lower() not in _NOTHING]
    chunks = [name for name in said if _CHUNK.search(plain[name])]
    totals = [name for name in numbers if _TOTAL.search(plain[name])]
    if told or chunks:
        sizes = [name for name in totals if name not in chunks or "size" not in plain[name]]
        is_whole = not told and _are_of_whole([numbers[name] for name in sizes], length)
        return [] if is_whole else [*told, *chunks]
    positions = [name for name in numbers if _POSITION.match(plain[name])]
    if positions and totals and not _are_of_whole([numbers[name] for name in totals], length):
        return [*positions, *totals]
    return _span_signs(plain, numbers, length)


def _are_of_whole(totals: list[int], length: int | None) -> bool:
    """Whether there are totals, and each is 1 or the length of this file."""
    return bool(totals) and all(total in {1, length} for total in totals)


def _span_signs(
    plain: Mapping[str, str], numbers: Mapping[str, int], length: int | None
) -> list[str]:
    """Names of a start and an end exactly one file length apart, unlike those of a video clip."""
    for start in (name for name in numbers if plain[name] in _STARTS):
        for end in (name for name in numbers if plain[name] in _ENDS):
            if length is not None and numbers[end] - numbers[start] in {length, length - 1}:
                return [start, end]
    return []
