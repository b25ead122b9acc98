"""Reads the body of an answer to several ranges."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReceivedPart:
    """One part: its headers by lower-case name, and its bytes."""

    headers: dict[str, str]
    content: bytes


def parts_of(body: bytes, boundary: str) -> list[ReceivedPart]:
    """The parts in order; fails if the body does not end properly."""
    delimiter = f"\r\n--{boundary}".encode()
    preamble, *parts, end = body.split(delimiter)
    assert (preamble, end) == (b"", b"--\r\n")
    return [_read(part) for part in parts]


def _read(part: bytes) -> ReceivedPart:
    head, _, content = part.partition(b"\r\n\r\n")
    lines = head.decode("ascii").removeprefix("\r\n").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return ReceivedPart({name.lower(): value for name, value in pairs}, content)
