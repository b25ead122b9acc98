"""Stores the bytes of cells: whole ones as parts, less as pieces, joined once they fill a cell.

A claim is taken around each part, never while bytes arrive. Whoever finds a cell claimed stores a
piece instead, so nobody waits for another node.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from app.domain.cells import MIB, Claim, Multipart, Piece, Stamp, StoredFile, covers, overlay
from app.domain.errors import UploadError
from app.domain.ranges import ByteRange
from app.storage.base import BytesLost
from app.storage.local.folder import disk_errors
from app.storage.s3.answers import MultipartGone
from app.storage.s3.bucket import Bucket
from app.storage.s3.catalog import Catalog
from app.storage.s3.connections import SLOWEST_BYTES_PER_SECOND
from app.storage.s3.contents import SpoolSlice, StoredObject
from app.storage.s3.spool import Spool, Spools

CALL_SECONDS = 60.0
"""What the store may take for a request, however few bytes it has."""

SPARE_SECONDS = 30.0
"""By how much a claim outlives the request that it was taken for."""

SHORTEST_COPY_BYTES = 5 * MIB
"""S3 copies ranges only of objects that are longer (UploadPartCopy)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptPiece:
    """A piece that was stored; `total` counts the bytes of all pieces of the cell."""

    name: str
    total: int


class CellStore:
    """Pieces and parts of files in a bucket."""

    def __init__(self, bucket: Bucket, catalog: Catalog, spools: Spools) -> None:
        self.bucket = bucket
        self.catalog = catalog
        self.spools = spools

    def keep(self, file: StoredFile, cell: int, spool: Spool, span: ByteRange) -> None:
        """Make bytes of one cell durable; raises `BytesLost` if the file is gone."""
        whole = file.cell(cell).span
        if file.is_one_object:
            self.put_piece(file.key, cell, span, spool.slice(span))
        elif span != whole or not self._put_part(file, cell, spool.slice(span)):
            kept = self.put_piece(file.key, cell, span, spool.slice(span))
            if kept.total >= whole.length:
                self._seal_if_possible(file, cell)

    def put_piece(
        self, key: str, cell: int, span: ByteRange, body: SpoolSlice | bytes
    ) -> KeptPiece:
        """Store bytes of a cell as an object; raises `BytesLost` if the file is gone."""
        name = new_name("pieces", key)
        piece_id = self.catalog.intend(key, cell, span, name)
        if piece_id is None:
            raise BytesLost(key)
        stored = self._within(span.length).put_object(name, body)
        total = self.catalog.commit(piece_id, key, cell, _stamp(stored))
        if total is None:
            self.catalog.discard(name)
            raise BytesLost(key)
        return KeptPiece(name, total)

    def seal(self, file: StoredFile, cell: int) -> bool:
        """Make a part of the pieces of a cell; False if somebody else is at it, or bytes lack."""
        span = file.cell(cell).span

        def upload(claim: Claim, multipart: Multipart) -> tuple[Claim, Stamp] | None:
            pieces = self.catalog.pieces(file.key, cell)
            if not covers(pieces, span):
                return None
            through = max(piece.id for piece in pieces)
            return replace(claim, through=through), self._join(multipart, claim, pieces, span)

        return self._claimed(file, cell, span.length, upload)

    def compose(self, file: StoredFile, cell: int, sources: Sequence[Piece]) -> bool:
        """Make a part of other objects, which cover the cell; False if somebody else is at it."""
        span = file.cell(cell).span
        return self._claimed(
            *(file, cell, span.length),
            lambda claim, multipart: (claim, self._join(multipart, claim, sources, span)),
        )

    def _put_part(self, file: StoredFile, cell: int, body: SpoolSlice) -> bool:
        def upload(claim: Claim, multipart: Multipart) -> tuple[Claim, Stamp]:
            bucket = self._within(body.length)
            stored = bucket.upload_part(multipart.name, multipart.id, claim.number, body)
            return claim, _stamp(stored)

        return self._claimed(file, cell, body.length, upload)

    def _claimed(
        self,
        file: StoredFile,
        cell: int,
        length: int,
        upload: Callable[[Claim, Multipart], tuple[Claim, Stamp] | None],
    ) -> bool:
        """Run `upload` under a claim, and record its part; whether that is stored now."""
        limit = limit_seconds(length)
        lease_ends = time.monotonic() + limit + SPARE_SECONDS
        lease = timedelta(seconds=limit + SPARE_SECONDS)
        claim = self.catalog.claim(file.key, cell, secrets.token_hex(16), lease)
        if claim is None:
            return False
        try:
            multipart = self.multipart(file)
            part = upload(claim, multipart) if time.monotonic() + limit < lease_ends else None
        except BaseException as error:
            self._release(claim)
            if isinstance(error, MultipartGone):
                raise BytesLost(file.key) from error
            raise
        if part is None:
            self._release(claim)
            return False
        return self.catalog.seal(part[0], length, part[1])

    def _release(self, claim: Claim) -> None:
        with suppress(UploadError):  # The lease ends it otherwise.
            self.catalog.release(claim)

    def _seal_if_possible(self, file: StoredFile, cell: int) -> None:
        try:
            self.seal(file, cell)
        except (UploadError, BytesLost) as error:
            # Its bytes are stored: whoever publishes the file tries again.
            log.warning("a cell is left in pieces: %s", error, extra={"upload_id": file.key})

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
        name = new_name("files", key)
        self.catalog.intend_multipart(name)
        own = Multipart(name, self.bucket.create_multipart(name))
        noted = self.catalog.begin_multipart(key, own)
        if noted is None:
            self.catalog.discard(own.name, own.id)
        return noted

    def _join(
        self, multipart: Multipart, claim: Claim, pieces: Sequence[Piece], span: ByteRange
    ) -> Stamp:
        taken = overlay(pieces, span)
        if len(taken) == 1 and span.length > SHORTEST_COPY_BYTES:
            piece, _ = taken[0]
            inside = ByteRange(span.start - piece.span.start, span.end - piece.span.start)
            try:
                stored = self._within(span.length).copy_part(
                    multipart.name, multipart.id, claim.number, piece.name, inside
                )
            except FileNotFoundError as error:
                raise BytesLost(piece.name) from error
            return _stamp(stored)
        with self.joined(pieces, span) as spool:
            stored = self._within(span.length).upload_part(
                multipart.name, multipart.id, claim.number, spool.slice(span)
            )
            return _stamp(stored)

    def joined(self, pieces: Sequence[Piece], span: ByteRange) -> Spool:
        """The bytes of a span, from pieces that cover it."""
        spool = self.spools.open(span)
        try:
            for piece, taken in overlay(pieces, span):
                self._fetch(piece, taken, spool)
        except BaseException:
            spool.close()
            raise
        return spool

    def _fetch(self, piece: Piece, span: ByteRange, spool: Spool) -> None:
        bucket, place = self._within(span.length), spool.place(span)
        inside = ByteRange(span.start - piece.span.start, span.end - piece.span.start)
        with disk_errors():
            try:
                bucket.copy_into(piece.name, inside, spool.descriptor, at=place.start)
            except FileNotFoundError as error:
                raise BytesLost(piece.name) from error

    def _within(self, length: int) -> Bucket:
        return self.bucket.within(limit_seconds(length))


def limit_seconds(length: int) -> float:
    """What the store may take for a request with so many bytes."""
    return CALL_SECONDS + length / SLOWEST_BYTES_PER_SECOND


def new_name(folder: str, key: str) -> str:
    """A name that no other attempt has: an object of a file is never written twice."""
    return f"{folder}/{key}.{secrets.token_hex(8)}"


def _stamp(stored: StoredObject) -> Stamp:
    return Stamp(stored.etag, stored.crc32c)
