"""Copies bytes of a piece into a spool and verifies the piece's checksum.

An object made from a piece replaces it, so corrupt bytes must be detected.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence

from crc32c import crc32c

from app.core.cells import Piece
from app.core.errors import StorageFailed
from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.s3.bucket import COPIED_BYTES, Bucket
from app.storage.s3.contents import crc32c_text
from app.storage.s3.spool import Spool, spool_errors

log = logging.getLogger(__name__)


def copy_piece(bucket: Bucket, piece: Piece, taken: Sequence[ByteRange], spool: Spool) -> None:
    """Copy some ranges of a piece; reads the whole piece if its checksum is known.

    Raises `StorageFailed` if the checksum does not match, `BytesLost` if the object is missing.
    """
    expected, value = piece.stamp.crc32c, 0
    for span in [piece.span] if expected else taken:
        for position, block in _blocks(bucket, piece, span):
            value = crc32c(block, value) if expected else 0
            _write(block, position, taken, spool)
    if expected:
        require_stored(piece, crc32c_text(value))


def require_stored(piece: Piece, found_crc32c: str) -> None:
    """Log and raise `StorageFailed` unless a piece's bytes match its stored checksum."""
    if found_crc32c != piece.stamp.crc32c:
        log.error("an object does not match the checksum of what was stored: %s", piece.name)
        raise StorageFailed("The object store returned other bytes than were stored.")


def _blocks(bucket: Bucket, piece: Piece, span: ByteRange) -> Iterator[tuple[int, memoryview]]:
    """Yields positions in the file with their bytes, in one reused buffer."""
    inside = ByteRange(span.start - piece.span.start, span.end - piece.span.start)
    buffer = memoryview(bytearray(min(COPIED_BYTES, span.length)))
    position = span.start
    try:
        with bucket.open(piece.name, inside, piece.span.length) as source:
            while count := source.readinto(buffer[: span.end - position]):
                yield position, buffer[:count]
                position += count
    except FileNotFoundError as error:
        raise BytesLost(piece.name) from error


def _write(block: memoryview, position: int, taken: Sequence[ByteRange], spool: Spool) -> None:
    """Write the bytes of a block that are in `taken`."""
    for span in taken:
        start, end = max(span.start, position), min(span.end, position + len(block))
        while start < end:
            wanted = block[start - position : end - position]
            with spool_errors():
                place = spool.place(ByteRange(start, end))
                start += os.pwrite(spool.descriptor, wanted, place.start)
