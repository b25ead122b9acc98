"""Writes one range of a file: piece by piece into a spool, and from there into the bucket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from app.core.errors import UploadError, WriterSuperseded
from app.core.pieces import Piece, StoredFile, spans_of_pieces
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy, discard
from app.ingest.slots import without_slot
from app.ingest.source import BodySource
from app.ingest.stages import Stage
from app.storage.base import AddRows, BytesLost, Checkpoint
from app.storage.local.range_lock import is_takeover_requested
from app.storage.local.range_writer import LOOK_SECONDS
from app.storage.s3.pieces import PieceStore
from app.storage.s3.spool import Spool, spool_errors

CHECKPOINT_SECONDS = 30.0
"""A killed worker loses at most this many seconds of a request. More frequent checkpoints cost more
requests to the store, and short pieces are read again when the file becomes one object."""


@dataclass
class BucketRangeWriter:
    """Writes one range of a file; `lock` is the open file that holds its lock on this node.

    `recorded` is called with the range of each piece whose row was added.
    """

    pieces: PieceStore
    file: StoredFile
    span: ByteRange
    lock: int
    limits: BodyLimits
    recorded: Callable[[StoredFile, ByteRange], None]
    _stored: list[Piece] = field(default_factory=list, init=False)
    _unverified: list[tuple[ByteRange, Spool]] = field(default_factory=list, init=False)

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """Store the bytes first, then call `checkpoint`, once for each piece but the last.

        Bytes that are verified only at the end are stored by `finish`.
        """
        self._checkpoint = None if source.is_verified_at_end else checkpoint
        self._told_to = self._stored_to = position = span.start
        now = time.monotonic()
        self._look_at, self._due_at = now + LOOK_SECONDS, now + CHECKPOINT_SECONDS
        for part in spans_of_pieces(span, self.file.length):
            self._tell()
            with ExitStack() as spools:
                spool = self.pieces.spools.open(part.start, may_reuse_file=True)
                spools.enter_context(spool)
                position = self._receive(part, spool, source)
                if source.is_verified_at_end and position > part.start:
                    self._unverified.append((ByteRange(part.start, position), spool))
                    spools.pop_all()  # Keep the spool open.
            if position < part.end:
                break
        return position

    def _receive(self, part: ByteRange, spool: Spool, source: BodySource) -> int:
        """Copy bytes into a spool and store them, usually as one piece; returns where they end.

        If the copy ends early, what has arrived is stored and reported. If storing itself failed,
        it is not retried: it has used up its time.
        """
        self._spool, self._is_storing = spool, False
        self._copy = FileCopy(spool.descriptor, ByteRange(0, part.length), self.limits)
        with spool_errors():
            try:
                self._copy.run(source, self._watch)
            except BytesLost:
                raise
            except BaseException:
                if not self._is_storing:
                    self._store()
                    self._tell()
                raise
            self._store()
        return part.start + self._copy.position

    def _watch(self) -> None:
        """Called by the copy after each block, and while it waits for bytes."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._stop_if_superseded()
            self._stop_if_removed()
        self._spool.check_room(self._copy.position)
        if now < self._due_at:
            return
        if self._checkpoint is None:
            self._touch()
        else:
            self._is_storing = True
            self._store()
            self._tell()
            self._is_storing = False

    def _touch(self) -> None:
        """Keep the file from counting as idle: nothing is recorded before it is verified."""
        with suppress(UploadError):  # The next try follows soon.
            self.pieces.catalog.touch(self.file.key)
        self._due_at = time.monotonic() + CHECKPOINT_SECONDS

    def _store(self) -> None:
        """Store the bytes that have arrived, unless they are verified at the end."""
        if self._checkpoint is None:
            return
        fresh = ByteRange(self._stored_to, self._spool.base + self._copy.position)
        if fresh.length:
            self._put(self._spool, fresh)
            self._stored_to = fresh.end
        self._due_at = time.monotonic() + CHECKPOINT_SECONDS

    def _tell(self) -> None:
        """Report the stored bytes with `checkpoint`."""
        stored = ByteRange(self._told_to, self._stored_to)
        if self._checkpoint is not None and stored.length:
            self._checkpoint(stored)
            self._told_to = stored.end

    def _put(self, spool: Spool, span: ByteRange) -> None:
        """Store bytes of a spool as a piece, without holding the request's slot."""
        with Stage.SYNC, without_slot():
            self._stored.append(self.pieces.put(self.file.key, span, spool.slice(span)))

    def skip(self, count: int, source: BodySource) -> None:
        """Skip bytes that are already stored, unless a newer writer takes over."""
        if count:
            discard(source, count=count, limits=self.limits, watch=self._stop_if_superseded)

    def finish(self, source: BodySource) -> None:
        """Finish the source unless a newer writer takes over, and store the verified bytes."""
        source.finish(self._stop_if_superseded)
        while self._unverified:
            span, spool = self._unverified.pop(0)
            with spool:
                self._put(spool, span)
            if time.monotonic() >= self._due_at:
                self._touch()

    @contextmanager
    def recording(self) -> Iterator[AddRows]:
        """Yields what adds the rows of the pieces stored so far."""
        found = [*self._stored]
        yield partial(self.pieces.catalog.add, key=self.file.key, found=found)
        self._stored = self._stored[len(found) :]
        for piece in found:
            self.recorded(self.file, piece.span)

    def drop(self) -> None:
        """Discard bytes that were not verified."""
        while self._unverified:
            self._unverified.pop()[1].close()

    def _stop_if_superseded(self) -> None:
        """Raise `WriterSuperseded` if a newer writer of this node has requested the range."""
        if is_takeover_requested(self.lock, self.span):
            raise WriterSuperseded("A newer request writes the same bytes.")

    def _stop_if_removed(self) -> None:
        """Raise `BytesLost` if this node knows that the upload has ended."""
        if os.fstat(self.lock).st_nlink == 0:
            raise BytesLost("the file was removed while it was written")
