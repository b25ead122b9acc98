"""Stores and reads the pieces of a file."""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from io import RawIOBase
from typing import TYPE_CHECKING, TypeVar

from crc32c import crc32c

from app.core.crc32c import in_base64
from app.core.errors import StorageFailed
from app.core.pieces import PIECE_BYTES, Piece, Taken, overlay, span_of
from app.core.ranges import ByteRange, RangeSet
from app.storage.base import BytesLost
from app.storage.s3.bucket import CALL_SECONDS, Bucket
from app.storage.s3.catalog import PIECES, BucketCatalog
from app.storage.s3.connections import SLOWEST_BYTES_PER_SECOND
from app.storage.s3.contents import SpoolSlice
from app.storage.s3.reader import SeekableReader, read_blocks
from app.storage.s3.spool import Spool, Spools

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READS_AT_ONCE = 8
"""Number of pieces that a process reads in parallel."""

WINDOW_BYTES = 8 * PIECE_BYTES
"""How far ahead a reader looks up pieces."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class PieceStore:
    """Puts pieces into a bucket, and reads them."""

    def __init__(self, bucket: Bucket, catalog: BucketCatalog, spools: Spools) -> None:
        self.bucket = bucket
        self.catalog = catalog
        self.spools = spools
        self._reading = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read")

    def put(self, key: str, span: ByteRange, body: SpoolSlice | bytes) -> Piece:
        """Put bytes of a file as an object, which its row must follow.

        Raises `BytesLost` if the file is gone or is one object already.
        """
        name = new_name(PIECES, key)
        self.catalog.announce(key, name)
        stored = self.within(span.length).put_object(name, body)
        return Piece(0, span, name, stored.crc32c)

    def collect(self, group: Sequence[Taken]) -> Spool:
        """Read adjacent ranges of pieces into a spool; the caller closes it.

        Raises `StorageFailed` if a piece does not match its checksum, `BytesLost` if it is missing.
        """
        span, ranges = span_of(group), defaultdict[Piece, list[ByteRange]](list)
        for piece, taken in group:
            ranges[piece].append(taken)
        spool = self.spools.open(span.start)

        def copy(piece: Piece) -> None:
            _copy_piece(self.within(piece.span.length), piece, ranges[piece], spool)

        try:
            run_all(self._reading, copy, ranges)
        except BaseException:
            spool.close()
            raise
        return spool

    def taken(self, key: str, span: ByteRange) -> tuple[list[Taken], int]:
        """What to take from which piece, from `span.start` on, and how far that is complete."""
        found, end = self.catalog.pieces(key, span)
        return overlay(found, ByteRange(span.start, end)), end

    def all_taken(self, key: str, start: int, length: int) -> Iterator[Taken]:
        """What to take from which piece, from `start` on, for a file of `length` bytes."""
        while start < length:
            taken, end = self.taken(key, ByteRange(start, length))
            yield from taken
            start = end

    def has_all(self, key: str, length: int) -> bool:
        """Whether pieces have all bytes of a file."""
        taken = self.all_taken(key, 0, length)
        return RangeSet.of(span for _, span in taken).covers(ByteRange(0, length))

    def within(self, length: int) -> Bucket:
        """The bucket, with the time limit of a request of `length` bytes."""
        return self.bucket.within(CALL_SECONDS + length / SLOWEST_BYTES_PER_SECOND)


def run_all(threads: ThreadPoolExecutor, call: Callable[[T], None], items: Iterable[T]) -> None:
    """Call a function with each item, in parallel; raises what one of the calls raises.

    Waits for the others first: none may go on with a spool that its caller closes then.
    """
    running = list[Future[None]]()
    try:
        running.extend(threads.submit(call, each) for each in items)
        for future in running:
            future.result()
    finally:
        for future in running:
            future.cancel()
        wait(running)


def new_name(folder: str, key: str) -> str:
    """Returns a unique name: no object is ever written twice."""
    return f"{folder}{key}.{secrets.token_hex(8)}"


def _copy_piece(bucket: Bucket, piece: Piece, taken: Sequence[ByteRange], spool: Spool) -> None:
    """Copy some ranges of a piece into a spool; reads the whole piece for its checksum.

    Raises `StorageFailed` if the checksum does not match, `BytesLost` if the object is missing.
    """
    value, position, length = 0, piece.span.start, piece.span.length
    try:
        with bucket.open(piece.name, ByteRange(0, length), length) as source:
            for block in read_blocks(source, length):
                value = crc32c(block, value)
                _write(block, position, taken, spool)
                position += len(block)
    except FileNotFoundError as error:
        raise BytesLost(piece.name) from error
    if in_base64(value) != piece.crc32c:
        log.error("an object does not match the checksum of what was stored: %s", piece.name)
        raise StorageFailed("The object store returned other bytes than were stored.")


def _write(block: memoryview, position: int, taken: Sequence[ByteRange], spool: Spool) -> None:
    """Write the bytes of a block that are in `taken`."""
    for span in taken:
        start, end = max(span.start, position), min(span.end, position + len(block))
        if start < end:
            spool.write(block[start - position : end - position], start)


# ---- reading -------------------------------------------------------------------------------------


class PieceReader(SeekableReader):
    """A file that is still being received, as long as its last piece; missing bytes read as zeros.

    It stays readable when the file becomes one object.
    """

    def __init__(self, store: PieceStore, key: str, length: int | None) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._length = length
        self._known: list[Taken] = []
        self._known_span = ByteRange(0, 0)
        self._source: tuple[Piece, RawIOBase] | None = None

    def close(self) -> None:
        """Close the connection."""
        self._let_go()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read from one piece, or zeros up to the next one; 0 at the end."""
        target = memoryview(buffer).cast("B")
        span = ByteRange(self._position, max(self._position, self._size()))
        if not span.length or not target:
            return 0
        count = self._read(ByteRange(span.start, min(span.end, span.start + len(target))), target)
        self._position += count
        return count

    def _size(self) -> int:
        """The declared length; without one, the end of the last piece."""
        if self._length is None:
            end = self._store.catalog.end(self._key)
            # Read second: a file that has become one object has a length, and no pieces.
            self._length = self._store.catalog.require(self._key).length or end
        return self._length

    def _read(self, span: ByteRange, target: memoryview) -> int:
        for _ in range(2):  # Pieces may have been added, or have become one object.
            piece, found = self._piece_at(span)
            if piece is None:
                target[: found.length] = bytes(found.length)
                return found.length
            try:
                return self._read_piece(piece, found, target)
            except FileNotFoundError:
                self._known_span = ByteRange(0, 0)
        raise BytesLost(self._key)

    def _piece_at(self, span: ByteRange) -> tuple[Piece | None, ByteRange]:
        """The piece with the first bytes of `span`, and which of these to read from it.

        Without a piece, the range up to the next one.
        """
        for is_fresh in (False, True):
            if is_fresh or not self._known_span.start <= span.start < self._known_span.end:
                self._look_up(span.start)
            next_start = self._known_span.end
            for piece, taken in self._known:
                if taken.start <= span.start < taken.end:
                    return piece, ByteRange(span.start, min(taken.end, span.end))
                if taken.start > span.start:
                    next_start = min(next_start, taken.start)
        return None, ByteRange(span.start, min(span.end, next_start))

    def _look_up(self, position: int) -> None:
        file = self._store.catalog.require(self._key)
        if file.name is not None and file.length is not None:
            whole = ByteRange(0, file.length)
            self._known, self._known_span = [(Piece(0, whole, file.name, ""), whole)], whole
            return
        window = ByteRange(position, position + WINDOW_BYTES)
        self._known, end = self._store.taken(self._key, window)
        self._known_span = ByteRange(position, end)

    def _read_piece(self, piece: Piece, span: ByteRange, target: memoryview) -> int:
        """Read bytes at the start of `span`; keeps the object open for the next read."""
        inside = ByteRange(span.start - piece.span.start, span.end - piece.span.start)
        if self._source is None or self._source[0] != piece:
            self._let_go()
            opened = self._store.bucket.open(piece.name, inside, piece.span.length)
            self._source = piece, opened
        source = self._source[1]
        source.seek(inside.start)
        return source.readinto(target[: inside.length]) or 0

    def _let_go(self) -> None:
        if self._source is not None:
            self._source[1].close()
        self._source = None
