"""Stores the bytes of cells: whole ones as parts, less as pieces, joined once they fill a cell.

A claim is taken around each part, never while bytes arrive. Whoever finds a cell claimed stores a
piece instead, so nobody waits for another node.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from app.core.cells import (
    MIB,
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
from app.core.errors import UploadError
from app.core.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.s3.answers import MultipartGone
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import Catalog
from app.storage.s3.claims import ClaimLost, Lease, claimed, limit_seconds
from app.storage.s3.contents import SpoolSlice
from app.storage.s3.piece_copy import copy_piece, require_stored
from app.storage.s3.spool import Spool, Spools

SHORTEST_COPY_BYTES = 5 * MIB
"""S3 copies ranges only from longer objects (UploadPartCopy)."""

MOST_PIECES = 64
"""Some pieces of a cell are joined whenever their number is a multiple of this. Nodes that store
pieces at the same moment may step over one; the next is not far."""

JOINED_AT_ONCE = 1024
"""Most pieces joined at once; the rest is left for the next time."""

READS_AT_ONCE = 8
"""Pieces that a process reads in parallel."""

RENEWED_SECONDS = 10.0
"""How often a reader of pieces checks that its claim lasts long enough."""

Uploaded = tuple[Stamp, int | None]
"""A part, and the newest piece that it includes, unless that is the newest before the claim."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptPiece:
    """A stored piece, and the cell's pieces in total."""

    name: str
    totals: PieceTotals


class CellStore:
    """Pieces and parts of files in a bucket."""

    def __init__(
        self, bucket: Bucket, catalog: Catalog, spools: Spools, *, most_pieces: int = MOST_PIECES
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
        is_full = totals.length >= whole.length and not file.is_one_object
        if is_full and self._seal_if_possible(file, cell):
            return
        if totals.count % self._most_pieces == 0:
            self._join_if_possible(file, cell)

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

        The announcement of one that failed is withdrawn: until it ends, older pieces must not be
        joined with newer ones.
        """
        name = new_name("pieces", key)
        piece_id = self.catalog.intend(key, cell, span, name)
        if piece_id is None:
            raise BytesLost(key)
        try:
            stamp = self._within(span.length).put_object(name, body)
        except Exception:  # Of the store, the spool or the network; raised again.
            with suppress(UploadError):  # Its lease ends it otherwise.
                self.catalog.withdraw(piece_id, name)
            raise
        return Piece(piece_id, cell, span, name, stamp)

    def seal(self, file: StoredFile, cell: int, *, patience: float = 1.0) -> bool:
        """Make a part from a cell's pieces; False if another claims it or bytes are missing.

        `patience` as of `Spools.open`.
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
        """Make a part from other objects, which cover the cell; False if another claims it."""
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
        """Run `upload` under a claim, and record its part; whether the part is stored."""
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

    def _seal_if_possible(self, file: StoredFile, cell: int) -> bool:
        """Seal a cell, unless that fails or has no room beside the spool that the caller has."""
        try:
            return self.seal(file, cell, patience=0.0)
        except (UploadError, BytesLost) as error:
            # Its bytes are stored: whoever publishes the file tries again.
            log.warning("a cell is left in pieces: %s", error, extra={"upload_id": file.key})
            return False

    def multipart(self, file: StoredFile) -> Multipart:
        """The multipart upload of a file, begun here if there is none yet; raises `BytesLost`."""
        known = file.multipart
        while known is None:
            known = self._noted_multipart(file.key) or self._begin_multipart(file.key)
        return known

    def _noted_multipart(self, key: str) -> Multipart | None:
        file = self.catalog.file(key)
        if file is None or file.name is not None:
            raise BytesLost(key)
        return file.multipart

    def _begin_multipart(self, key: str) -> Multipart | None:
        """None if the file is gone, or it took so long that a sweep may have aborted this one."""
        own = Multipart(*self.bucket.create_multipart_anew(lambda: self._intended_name(key)))
        noted = self.catalog.begin_multipart(key, own)
        if noted is None:
            self.catalog.discard(own.name, own.id)
        return noted

    def _intended_name(self, key: str) -> str:
        """A sweep aborts what has this name, unless it becomes the multipart upload of the file."""
        name = new_name("files", key)
        self.catalog.intend_multipart(name)
        return name

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
        """Copy bytes of a piece within the store; None if the store reports no checksum of them.

        A part without one cannot be completed on every store: versitygw reports the checksum of
        the whole source if that has parts itself. Raises `StorageFailed` if the copy of a whole
        piece does not match its checksum.
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

    def _join_if_possible(self, file: StoredFile, cell: int) -> None:
        """Join pieces of a cell that has many, unless another claim is active.

        Their bytes are stored: whoever adds more tries again.
        """
        length = file.cell(cell).span.length
        try:
            with claimed(self.catalog, file.key, cell, length) as lease:
                if lease is not None:
                    self._join(lease)
        except ClaimLost:
            return
        except (UploadError, BytesLost) as error:
            log.warning("many pieces are left: %s", error, extra={"upload_id": file.key})

    def _join(self, lease: Lease) -> None:
        key, cell = lease.claim.key, lease.claim.cell
        pieces = self.catalog.pieces(key, cell)
        if self.catalog.part(key, cell) is not None:
            return  # Pieces that came before the part must not mix with those that came after it.
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
        """The bytes of a span, from pieces that cover it; keeps the lease alive meanwhile.

        Raises `StorageFailed` if a piece is not what was stored, `BytesLost` if it is missing.
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
            wait(reads)  # Nobody may write to a spool that is closed.
            spool.close()
            raise
        return spool

    def _within(self, length: int) -> Bucket:
        return self.bucket.within(limit_seconds(length))


def new_name(folder: str, key: str) -> str:
    """A unique name: no object is ever written twice."""
    return f"{folder}/{key}.{secrets.token_hex(8)}"
