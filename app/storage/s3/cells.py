"""Stores the bytes of cells: whole cells as parts, less as pieces, joined once they fill a cell.

A request claims a cell only to upload its part, never while bytes arrive. If the cell is already
claimed, it stores a piece instead, so no request waits for another node.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from crc32c import crc32c

from app.core.cells import (
    MIB,
    Claim,
    Multipart,
    Piece,
    PieceTotals,
    Stamp,
    StoredFile,
    covers,
    joinable,
    overlay,
    span_of,
)
from app.core.errors import StorageFailed, UploadError
from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.s3.bucket import CALL_SECONDS, COPIED_BYTES, Bucket
from app.storage.s3.caller import MultipartGone
from app.storage.s3.catalog import BucketCatalog
from app.storage.s3.connections import SLOWEST_BYTES_PER_SECOND
from app.storage.s3.contents import SpoolSlice, crc32c_text
from app.storage.s3.spool import Spool, Spools, spool_errors

log = logging.getLogger(__name__)

SHORTEST_COPY_BYTES = 5 * MIB
"""S3 copies ranges only from longer objects (UploadPartCopy)."""

MOST_PIECES = 64
"""Pieces of a cell are joined whenever their number is a multiple of this. Nodes that store pieces
at the same moment may skip a multiple; the next one soon follows."""

JOINED_AT_ONCE = 1024
"""Most pieces joined at once; the rest are left for the next time."""

READS_AT_ONCE = 8
"""Number of pieces that a process reads in parallel."""

RENEWED_SECONDS = 10.0
"""How often a reader of pieces checks that its lease lasts long enough."""

Uploaded = tuple[Stamp, int | None]
"""A part and the newest piece it includes; None stands for the newest piece before the claim."""


@dataclass(frozen=True, slots=True)
class KeptPiece:
    """A stored piece, and the totals of its cell's pieces."""

    name: str
    totals: PieceTotals


class CellStore:
    """Stores pieces and parts of files in a bucket."""

    def __init__(
        self,
        bucket: Bucket,
        catalog: BucketCatalog,
        spools: Spools,
        *,
        most_pieces: int = MOST_PIECES,
    ) -> None:
        self.bucket = bucket
        self.catalog = catalog
        self.spools = spools
        self._most_pieces = most_pieces
        self._reading = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read")

    def keep(self, file: StoredFile, cell: int, spool: Spool, span: ByteRange) -> None:
        """Make bytes of one cell durable; raises `BytesLost` if the file is gone."""
        whole = file.cell(cell).span
        is_part = span == whole and not file.is_one_object
        if is_part and self._put_part(file, cell, spool.slice(span)):
            return
        totals = self.put_piece(file.key, cell, span, spool.slice(span)).totals
        if totals.length >= whole.length and not file.is_one_object:
            try:
                if self.seal(file, cell, patience=0.0):  # There may be no room for a second spool.
                    return
            except (UploadError, BytesLost) as error:
                # Its bytes are stored; publishing the file tries again.
                log.warning("a cell is left in pieces: %s", error, extra={"upload_id": file.key})
        if totals.count % self._most_pieces == 0:
            self._join(file, cell)

    def put_piece(
        self, key: str, cell: int, span: ByteRange, body: SpoolSlice | bytes
    ) -> KeptPiece:
        """Store bytes of a cell as an object; raises `BytesLost` if the file is gone."""
        new = self._put_announced(key, cell, span, body)
        totals = self.catalog.commit(new.id, key, cell, new.stamp)
        if totals is None:
            self.catalog.discard(new.name)
            raise BytesLost(key)
        return KeptPiece(new.name, totals)

    def _put_announced(
        self, key: str, cell: int, span: ByteRange, body: SpoolSlice | bytes
    ) -> Piece:
        """Store an object that the catalog does not count as a piece yet.

        If storing fails, withdraws the announcement: while it exists, older pieces cannot be joined
        with newer ones.
        """
        name = new_name("pieces", key)
        piece_id = self.catalog.intend(key, cell, span, name)
        if piece_id is None:
            raise BytesLost(key)
        try:
            stamp = self._within(span.length).put_object(name, body)
        except Exception:  # From the store, the spool or the network; re-raised.
            with suppress(UploadError):  # If this fails, the lease expires.
                self.catalog.withdraw(piece_id, name)
            raise
        return Piece(piece_id, cell, span, name, stamp)

    def seal(self, file: StoredFile, cell: int, *, patience: float = 1.0) -> bool:
        """Make a part from a cell's pieces; False if the cell is claimed or bytes are missing.

        `patience` as in `Spools.open`.
        """
        span = file.cell(cell).span

        def upload(lease: Lease, multipart: Multipart) -> Uploaded | None:
            pieces = self.catalog.pieces(file.key, cell)
            if not covers(pieces, span):
                return None
            stamp = self._part_of(pieces, span, lease, multipart, patience)
            return stamp, max(piece.id for piece in pieces)

        return self._store_part(file, cell, span.length, upload)

    def compose(self, file: StoredFile, cell: int, sources: Sequence[Piece]) -> bool:
        """Make a part from other objects that cover the cell; False if the cell is claimed."""
        span = file.cell(cell).span

        def upload(lease: Lease, multipart: Multipart) -> Uploaded:
            return self._part_of(sources, span, lease, multipart, patience=1.0), None

        return self._store_part(file, cell, span.length, upload)

    def _put_part(self, file: StoredFile, cell: int, body: SpoolSlice) -> bool:
        def upload(lease: Lease, multipart: Multipart) -> Uploaded:
            lease.cover(body.length)
            bucket = self._within(body.length)
            number = lease.claim.number
            return bucket.upload_part(multipart.name, multipart.id, number, body), None

        return self._store_part(file, cell, body.length, upload)

    def _store_part(
        self,
        file: StoredFile,
        cell: int,
        length: int,
        upload: Callable[[Lease, Multipart], Uploaded | None],
    ) -> bool:
        """Run `upload` under a claim and record its part; returns whether the part is stored."""
        with claimed(self.catalog, file.key, cell, length) as lease:
            if lease is None:
                return False
            try:
                uploaded = upload(lease, self.multipart(file))
            except MultipartGone as error:
                raise BytesLost(file.key) from error
            except ClaimLost:
                return False
            if uploaded is None:
                return False
            stamp, through = uploaded
            return lease.seal(length, stamp, through=through)

    def multipart(self, file: StoredFile) -> Multipart:
        """Returns the multipart upload of a file; creates it if needed. Raises `BytesLost`."""

        def announced_name() -> str:
            """A sweep aborts the multipart upload with this name unless it becomes the file's."""
            name = new_name("files", file.key)
            self.catalog.intend_multipart(name)
            return name

        known = file.multipart
        while known is None:
            known = self.catalog.require_open(file.key).multipart
            if known is None:
                own = Multipart(*self.bucket.create_named_multipart(announced_name))
                known = self.catalog.begin_multipart(file.key, own)
                if known is None:  # The file is gone, or a sweep may have aborted the upload.
                    self.catalog.discard(own.name, own.id)
        return known

    def _part_of(
        self,
        pieces: Sequence[Piece],
        span: ByteRange,
        lease: Lease,
        multipart: Multipart,
        patience: float,
    ) -> Stamp:
        taken = overlay(pieces, span)
        target = multipart.name, multipart.id, lease.claim.number
        if len(taken) == 1 and span.length > SHORTEST_COPY_BYTES:
            lease.cover(span.length)
            copied = self._copied_part(taken[0][0], span, target)
            if copied is not None:
                return copied
        with self.joined(pieces, span, lease, patience=patience) as spool:
            lease.cover(span.length)
            return self._within(span.length).upload_part(*target, spool.slice(span))

    def _copied_part(
        self, piece: Piece, span: ByteRange, target: tuple[str, str, int]
    ) -> Stamp | None:
        """Copy bytes of a piece inside the store; None if the store reports no checksum for them.

        Not every store can complete a part without a checksum. If the source has parts itself,
        versitygw reports the checksum of the whole source. Raises `StorageFailed` if the copy of a
        whole piece does not match its checksum.
        """
        inside = ByteRange(span.start - piece.span.start, span.end - piece.span.start)
        try:
            stamp = self._within(span.length).copy_part(*target, piece.name, inside)
        except FileNotFoundError as error:
            raise BytesLost(piece.name) from error
        if not stamp.crc32c:
            return None
        if span == piece.span and piece.stamp.crc32c:
            require_stored(piece, stamp.crc32c)
        return stamp

    def _join(self, file: StoredFile, cell: int) -> None:
        """Join pieces of a cell that has many, unless another claim is active.

        If it fails, no bytes are lost: the next join tries again.
        """
        length = file.cell(cell).span.length
        try:
            with claimed(self.catalog, file.key, cell, length) as lease:
                if lease is not None:
                    self._join_claimed(lease)
        except ClaimLost:
            return
        except (UploadError, BytesLost) as error:
            log.warning("many pieces are left: %s", error, extra={"upload_id": file.key})

    def _join_claimed(self, lease: Lease) -> None:
        key, cell = lease.claim.key, lease.claim.cell
        pieces = self.catalog.pieces(key, cell)
        if self.catalog.part(key, cell) is not None:
            return  # Pieces older than the part must not be joined with newer ones.
        for run in joinable(pieces):
            group = run[:JOINED_AT_ONCE]
            span = span_of(group)
            if not self.catalog.is_joinable(key, group):
                continue
            with self.joined(group, span, lease, patience=0.0) as spool:
                lease.cover(span.length)
                new = self._put_announced(key, cell, span, spool.slice(span))
                if not self.catalog.join(new.id, group, key, new.stamp):
                    self.catalog.withdraw(new.id, new.name)

    def joined(
        self,
        pieces: Sequence[Piece],
        span: ByteRange,
        lease: Lease | None = None,
        *,
        patience: float = 1.0,
    ) -> Spool:
        """Read a span into a spool, from pieces that cover it; renews the lease while it reads.

        Raises `StorageFailed` if a piece does not match its checksum, `BytesLost` if it is missing.
        """
        ranges = defaultdict[Piece, list[ByteRange]](list)
        for piece, taken in overlay(pieces, span):
            ranges[piece].append(taken)
        spool, reads = self.spools.open(span, patience=patience), list[Future[None]]()
        try:
            for piece, wanted in ranges.items():
                bucket = self._within(piece.span.length)
                reads.append(self._reading.submit(copy_piece, bucket, piece, wanted, spool))
            while wait(reads, RENEWED_SECONDS).not_done:
                if lease is not None:
                    lease.cover(span.length)
            for each in reads:
                each.result()
        except BaseException:
            for each in reads:
                each.cancel()
            wait(reads)  # No thread may write to a closed spool.
            spool.close()
            raise
        return spool

    def _within(self, length: int) -> Bucket:
        return self.bucket.within(limit_seconds(length))


def new_name(folder: str, key: str) -> str:
    """Returns a unique name: no object is ever written twice."""
    return f"{folder}/{key}.{secrets.token_hex(8)}"


# ---- reading pieces ------------------------------------------------------------------------------

# An object made from a piece replaces it, so corrupt bytes must be detected.


def copy_piece(bucket: Bucket, piece: Piece, taken: Sequence[ByteRange], spool: Spool) -> None:
    """Copy some ranges of a piece; reads the whole piece if its checksum is known.

    Raises `StorageFailed` if the checksum does not match, `BytesLost` if the object is missing.
    """
    expected, value = piece.stamp.crc32c, 0
    for span in [piece.span] if expected else taken:
        inside = ByteRange(span.start - piece.span.start, span.end - piece.span.start)
        buffer = memoryview(bytearray(min(COPIED_BYTES, span.length)))
        position = span.start
        try:
            with bucket.open(piece.name, inside, piece.span.length) as source:
                while count := source.readinto(buffer[: span.end - position]):
                    value = crc32c(buffer[:count], value) if expected else 0
                    _write(buffer[:count], position, taken, spool)
                    position += count
        except FileNotFoundError as error:
            raise BytesLost(piece.name) from error
    if expected:
        require_stored(piece, crc32c_text(value))


def require_stored(piece: Piece, found_crc32c: str) -> None:
    """Log and raise `StorageFailed` unless a piece's bytes match its stored checksum."""
    if found_crc32c != piece.stamp.crc32c:
        log.error("an object does not match the checksum of what was stored: %s", piece.name)
        raise StorageFailed("The object store returned other bytes than were stored.")


def _write(block: memoryview, position: int, taken: Sequence[ByteRange], spool: Spool) -> None:
    """Write the bytes of a block that are in `taken`."""
    for span in taken:
        start, end = max(span.start, position), min(span.end, position + len(block))
        while start < end:
            wanted = block[start - position : end - position]
            with spool_errors():
                place = spool.place(ByteRange(start, end))
                start += os.pwrite(spool.descriptor, wanted, place.start)


# ---- claims --------------------------------------------------------------------------------------

# The holder of a claim on a cell makes its part or joins its pieces; others do not wait.


SPARE_SECONDS = 30.0
"""How long a claim outlives the request that took it."""


class ClaimLost(Exception):
    """Another request has taken over the cell."""


class Lease:
    """A claim, and until when it is certain to hold by this machine's monotonic clock."""

    def __init__(self, catalog: BucketCatalog, claim: Claim, ends_at: float) -> None:
        self.claim = claim
        self.is_over = False
        self._catalog = catalog
        self._ends_at = ends_at

    def cover(self, length: int) -> None:
        """Extend the lease to outlive a request of `length` bytes; raises `ClaimLost`."""
        limit = limit_seconds(length)
        if time.monotonic() + limit < self._ends_at:
            return
        seconds = limit + SPARE_SECONDS
        ends_at = time.monotonic() + seconds
        if not self._catalog.renew(self.claim, timedelta(seconds=seconds)):
            raise ClaimLost
        self._ends_at = ends_at

    def seal(self, length: int, stamp: Stamp, *, through: int | None = None) -> bool:
        """Record the part, which includes pieces up to `through`, and end the claim."""
        claim = self.claim if through is None else replace(self.claim, through=through)
        is_sealed = self._catalog.seal(claim, length, stamp)
        self.is_over = True
        return is_sealed


@contextmanager
def claimed(catalog: BucketCatalog, key: str, cell: int, length: int) -> Iterator[Lease | None]:
    """Claim a cell for a request of `length` bytes; yields None while another claim is active.

    If the database's response was lost, releases the claim instead of holding it until it expires.
    """
    seconds = limit_seconds(length) + SPARE_SECONDS
    ends_at, token = time.monotonic() + seconds, secrets.token_hex(16)
    try:
        claim = catalog.claim(key, cell, token, timedelta(seconds=seconds))
    except UploadError:
        with suppress(UploadError):
            catalog.release(Claim(key, cell, token, number=0, through=0))
        raise
    if claim is None:
        yield None
        return
    lease = Lease(catalog, claim, ends_at)
    try:
        yield lease
    finally:
        if not lease.is_over:
            with suppress(UploadError):  # If this fails, the lease expires.
                catalog.release(claim)


def limit_seconds(length: int) -> float:
    """Time limit for a request of `length` bytes, in seconds."""
    return CALL_SECONDS + length / SLOWEST_BYTES_PER_SECOND
