"""Combines the CRC32Cs of a file's parts into the file's, without reading the bytes again."""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache, partial

from app.core.ranges import ByteRange, to_little_endian

POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, with the bits of each byte reversed (RFC 3720, appendix B.4)."""

ONE = 0x80000000
"""The polynomial 1; the highest bit is the coefficient of x^0."""

X_TO_THE_8 = ONE >> 8


def joined(first: int, second: int, length: int) -> int:
    """The CRC32C of two concatenated blocks, from those of both; `length` is the second's."""
    return _product(first, _shift(length)) ^ second


def from_base64(text: str) -> int:
    """The inverse of `in_base64`."""
    return int.from_bytes(b64decode(text), "big")


def in_base64(crc32c: int) -> str:
    """Four bytes, big-endian, in base64, as in S3."""
    return b64encode(crc32c.to_bytes(4, "big")).decode()


@lru_cache(maxsize=32)
def _shift(length: int) -> int:
    """The factor of a CRC that `length` bytes follow: x^(8 * length)."""
    power, square = ONE, X_TO_THE_8
    while length:
        if length & 1:
            power = _product(power, square)
        square = _product(square, square)
        length >>= 1
    return power


def _product(one: int, other: int) -> int:
    """The product of two polynomials over GF(2), modulo the CRC's polynomial."""
    product = 0
    while one:
        if one & ONE:
            product ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = (other >> 1) ^ (POLYNOMIAL if other & 1 else 0)
    return product


# ---- range sums ----------------------------------------------------------------------------------

# CRC32Cs of the received parts of a file, combined where parts are adjacent.


@dataclass(frozen=True, slots=True)
class RangeSums:
    """Immutable; holds start, end and CRC32C of each part, in order. No two overlap or touch."""

    _numbers: array[int] = field(default_factory=partial(array, "q"))

    @classmethod
    def from_bytes(cls, data: bytes) -> RangeSums:
        """Parse the output of `to_bytes`; raises `ValueError` if it is damaged."""
        if len(data) % 24:
            raise ValueError(f"damaged: {len(data)} bytes are not a whole number of sums")
        numbers = array("q", data)
        to_little_endian(numbers)
        return cls(numbers)

    def to_bytes(self) -> bytes:
        """All numbers as signed 64-bit little-endian ones: 24 bytes for each part."""
        numbers = self._numbers[:]
        to_little_endian(numbers)
        return numbers.tobytes()

    def __hash__(self) -> int:
        return hash(self._numbers.tobytes())

    def add(self, span: ByteRange, crc32c: int) -> RangeSums:
        """The sums with that of `span` added, which must not overlap any of them."""
        if span.length == 0:
            return self
        starts, ends = self._numbers[::3], self._numbers[1::3]
        place = bisect_left(starts, span.start)
        first = last = place
        start, end, value = span.start, span.end, crc32c
        if place and ends[place - 1] == start:
            first -= 1
            start, value = starts[first], joined(self._value(first), value, span.length)
        if place < len(starts) and starts[place] == end:
            last += 1
            value = joined(value, self._value(place), ends[place] - starts[place])
            end = ends[place]
        numbers = self._numbers[: 3 * first]
        numbers.extend((start, end, value))
        return RangeSums(numbers + self._numbers[3 * last :])

    @property
    def total(self) -> int:
        """Number of bytes that have sums."""
        return sum(self._numbers[1::3]) - sum(self._numbers[::3])

    def whole(self, length: int) -> int | None:
        """The CRC32C of a file of `length` bytes; None unless the sums cover it."""
        if length == 0:
            return 0
        return self._value(0) if self._numbers[:2] == array("q", (0, length)) else None

    def _value(self, place: int) -> int:
        return self._numbers[3 * place + 2]
