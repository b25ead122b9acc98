"""Value types: bytes to be stored in a bucket, and the store's reports about objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from crc32c import crc32c

from app.core.crc32c import in_base64
from app.core.pieces import Checksums

BLOCK_BYTES = 512 * 1024
"""Block size; a block stays in the CPU cache between reading and encrypting. Reading a spool for
its CRC32C costs 0.10 CPU s/GB; with 256 KiB 0.12, with 4 MiB 0.11 to 0.16."""


class SpoolTooShort(Exception):
    """A slice extends beyond the written bytes: a bug of the caller."""


@dataclass(frozen=True, slots=True)
class SpoolSlice:
    """A range of an open file: `length` bytes from `start` on."""

    descriptor: int
    start: int
    length: int
    give_up: Callable[[], None] = lambda: None
    """Called when a request is aborted while the store may still be reading the file."""


Body = bytes | SpoolSlice


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """An object's metadata."""

    length: int
    etag: str


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An entry of a listing."""

    name: str
    length: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ListedPart:
    """A part of an unfinished multipart upload; `crc32c` is empty if the store reports none."""

    number: int
    length: int
    stored: Checksums


@dataclass(frozen=True, slots=True)
class ListedMultipart:
    """A multipart upload that was neither completed nor aborted."""

    name: str
    id: str
    started_at: datetime


def blocks_of(body: SpoolSlice) -> Iterator[memoryview]:
    """Yields the bytes of a slice block by block, in one reused buffer.

    Raises `SpoolTooShort` if the file ends before the slice does.
    """
    buffer = memoryview(bytearray(min(BLOCK_BYTES, body.length)))
    position, end = body.start, body.start + body.length
    while position < end:
        count = os.preadv(body.descriptor, [buffer[: end - position]], position)
        if count == 0:
            raise SpoolTooShort
        yield buffer[:count]
        position += count


def crc32c_of(body: Body) -> str:
    """Returns the CRC32C (RFC 3720) in S3's format: base64 of four bytes, big-endian."""
    value = 0
    for block in [body] if isinstance(body, bytes) else blocks_of(body):
        value = crc32c(block, value)
    return in_base64(value)
