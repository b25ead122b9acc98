"""The CRC32C of a file, from those of its parts: nobody has to read the bytes again."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import lru_cache

POLYNOMIAL = 0x82F63B78
"""Castagnoli's, with the bits of each byte reversed (RFC 3720, appendix B.4)."""

ONE = 0x80000000
"""The polynomial 1; the highest bit is the coefficient of x^0."""

X_TO_THE_8 = ONE >> 8


def joined_crc32c(parts: Iterable[tuple[int, str]]) -> str:
    """The CRC32C of parts in a row, each given as length and CRC32C; in base64, as S3 writes it."""
    value = 0
    for length, checksum in parts:
        value = joined(value, int.from_bytes(b64decode(checksum), "big"), length)
    return in_base64(value)


def joined(first: int, second: int, length: int) -> int:
    """The CRC32C of bytes and of `length` further ones, from those of both."""
    return _product(first, _shift(length)) ^ second


def in_base64(crc32c: int) -> str:
    """Four bytes, the highest first, as S3 writes it."""
    return b64encode(crc32c.to_bytes(4, "big")).decode()


@lru_cache(maxsize=32)
def _shift(length: int) -> int:
    """What a CRC is multiplied by when so many bytes follow: x^(8 * length)."""
    power, square = ONE, X_TO_THE_8
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
