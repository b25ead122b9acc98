"""Compares the bytes of two open files."""

from __future__ import annotations

from io import RawIOBase

COMPARED_BYTES = 256 * 1024
"""Block size of the comparison."""


def has_same_bytes(one: RawIOBase, other: RawIOBase, length: int) -> bool:
    """Whether the next `length` bytes of both files exist and are equal."""
    while length:
        block = one.read(min(length, COMPARED_BYTES)) or b""
        if not block or _read_exactly(other, len(block)) != block:
            return False
        length -= len(block)
    return True


def _read_exactly(file: RawIOBase, count: int) -> bytes:
    """Returns `count` bytes; fewer at the end of the file."""
    found = b""
    while len(found) < count and (block := file.read(count - len(found))):
        found += block
    return found
