"""The CRC32C of a file from those of the chunks that were sent: no byte is read for it again."""

from __future__ import annotations

import threading
from functools import lru_cache

from sluice_client.spans import Span

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with the bits of each byte reversed (RFC 3720, appendix B.4)."""

ONE = 0x80000000
"""The polynomial 1; the highest bit is the coefficient of x^0."""


class ChunkSums:
    """CRC32C by span. Safe to use from several threads."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, span: Span, crc32c: int) -> None:
        """Note that of a chunk that the server has."""
        with self._lock:
            self._sums[span.start] = span.end, crc32c

    def whole(self, length: int) -> int | None:
        """That of a file of `length` bytes; None unless the chunks lie end to end in it."""
        with self._lock:
            sums = sorted(self._sums.items())
        position = value = 0
        for start, (end, crc32c) in sums:
            if start != position:
                return None
            value = joined(value, crc32c, end - start)
            position = end
        return value if position == length else None


def joined(first: int, second: int, length: int) -> int:
    """The CRC32C of bytes and of `length` further ones, from those of both."""
    return _product(first, _shift(length)) ^ second


@lru_cache(maxsize=64)
def _shift(length: int) -> int:
    """What a CRC is multiplied by when so many bytes follow: x^(8 * length)."""
    power, square = ONE, ONE >> 8
    while length:
        if length & 1:
            power = _product(power, square)
        square = _product(square, square)
        length >>= 1
    return power


def _product(one: int, other: int) -> int:
    """Of two polynomials over GF(2), modulo the polynomial of the CRC."""
    product = 0
    while one:
        if one & ONE:
            product ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = (other >> 1) ^ (POLYNOMIAL if other & 1 else 0)
    return product
