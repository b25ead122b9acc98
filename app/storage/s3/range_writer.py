"""Writes one range of a file: piece by piece into a spool, and from there into the bucket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from app.core.errors import WriterSuperseded
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


@dataclass(slots=True, kw_only=True)
class BucketRangeWriter:
    """Writes one range of a file; `lock` is the open file that holds its lock on this node.

    `recorded` is called with the end of bytes whose rows were added.
    """

    pieces: PieceStore
    file: StoredFile
    span: ByteRange
    lock: int
    limits: BodyLimits
    checkpoint_seconds: float
    recorded: Callable[[StoredFile, ByteRange], None]
    _stored: list[Piece] = field(default_factory=list, init=False)
    _unverified: list[tuple[ByteRange, Spool]] = field(default_factory=list, init=False)

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """Store the bytes first, then call `checkpoint`, once for each piece but the last.

        Bytes that are verified only at the end are stored by `finish`.
        """
        position = told_to = span.start
        for part in spans_of_pieces(span, self.file.length):
            if told_to < position and not source.is_verified_at_end:
                checkpoint(ByteRange(told_to, position))
            with ExitStack() as spools:
                spool = self.pieces.spools.open(part.start, may_reuse_file=True)
                spools.enter_context(spool)
                flow = _PieceFlow(
                    self, part, spool, None if source.is_verified_at_end else checkpoint
                )
                with spool_errors():
                    flow.run(source)
                position, told_to = flow.position, flow.told_to
                if source.is_verified_at_end and position > part.start:
                    self._unverified.append((ByteRange(part.start, position), spool))
                    spools.pop_all()  # Keep the spool open.
            if position < part.end:
                break
        return position

    def skip(self, count: int, source: BodySource) -> None:
        """Skip bytes that are already stored, unless a newer writer takes over."""
        if count:
            discard(source, count=count, limits=self.limits, watch=self.stop_if_superseded)

    def finish(self, source: BodySource) -> None:
        """Finish the source unless a newer writer takes over, and store the verified bytes."""
        source.finish(self.stop_if_superseded)
        while self._unverified:
            span, spool = self._unverified.pop(0)
            with spool:
                self.keep(spool, span)

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

    def keep(self, spool: Spool, span: ByteRange) -> None:
        """Store bytes of a spool as a piece, without holding the request's slot."""
        with Stage.SYNC, without_slot():
            self._stored.append(self.pieces.put(self.file.key, span, spool.slice(span)))

    def stop_if_superseded(self) -> None:
        """Raise `WriterSuperseded` if a newer writer of this node has requested the range."""
        if is_takeover_requested(self.lock, self.span):
            raise WriterSuperseded("A newer request writes the same bytes.")

    def stop_if_removed(self) -> None:
        """Raise `BytesLost` if this node knows that the upload has ended."""
        if os.fstat(self.lock).st_nlink == 0:
            raise BytesLost("the file was removed while it was written")


class _PieceFlow:
    """Follows the copy of a range into a spool and stores its bytes, usually as one piece.

    Without a `checkpoint` it stores nothing.
    """

    def __init__(
        self,
        writer: BucketRangeWriter,
        span: ByteRange,
        spool: Spool,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._writer = writer
        self._spool = spool
        self._copy = FileCopy(spool.descriptor, ByteRange(0, span.length), writer.limits)
        self._checkpoint = checkpoint
        self._check_room = writer.pieces.spools.room_check(spool)
        self._is_storing = False
        self.told_to = span.start
        now = time.monotonic()
        self._look_at = now + LOOK_SECONDS
        self._due_at = now + writer.checkpoint_seconds

    @property
    def position(self) -> int:
        """End of the bytes received so far, as a position in the file."""
        return self._spool.base + self._copy.position

    def run(self, source: BodySource) -> None:
        """Copy and store the bytes; if the copy ends early, received bytes are stored and recorded.

        If storing itself failed, it is not retried: it has used up its time.
        """
        try:
            self._copy.run(source, self._watch)
        except BytesLost:
            raise
        except BaseException:
            if not self._is_storing:
                self._store_and_tell()
            raise
        self._store()

    def _watch(self) -> None:
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._writer.stop_if_superseded()
            self._writer.stop_if_removed()
        self._check_room(self._copy.position)
        if now >= self._due_at:
            self._store_and_tell()
            self._due_at = time.monotonic() + self._writer.checkpoint_seconds

    def _store_and_tell(self) -> None:
        fresh = ByteRange(self.told_to, self.position)
        self._is_storing = True
        self._store()
        self.told_to = fresh.end
        if self._checkpoint is not None and fresh.length:
            self._checkpoint(fresh)
        self._is_storing = False

    def _store(self) -> None:
        """Store the bytes received since the last checkpoint."""
        fresh = ByteRange(self.told_to, self.position)
        if self._checkpoint is not None and fresh.length:
            self._writer.keep(self._spool, fresh)
