"""Writes one range of a file: cell by cell into a spool, and from there into the bucket."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from app.core.cells import Cell, StoredFile
from app.core.errors import WriterSuperseded
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, discard
from app.ingest.slots import without_slot
from app.ingest.source import BodySource
from app.ingest.stages import Stage
from app.storage.base import BytesLost, Checkpoint
from app.storage.local.range_lock import is_takeover_requested
from app.storage.local.range_writer import LOOK_SECONDS
from app.storage.s3.cells import CellStore
from app.storage.s3.spool import FIRST_BYTES, Spool, SpoolCopy, spool_errors

CHECKPOINT_SECONDS = 30.0
"""A killed worker loses at most this many seconds of a request. More frequent checkpoints cost more
requests to the store, and a cell stored in pieces is uploaded twice."""


@dataclass(slots=True, kw_only=True)
class BucketRangeWriter:
    """Writes one range of a file; `lock` is the open file that holds its lock on this node."""

    cells: CellStore
    file: StoredFile
    span: ByteRange
    lock: int
    limits: BodyLimits
    checkpoint_seconds: float
    _unverified: list[tuple[Cell, Spool]] = field(default_factory=list, init=False)

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """Store the bytes first, then call `checkpoint`, once for each cell but the last.

        Bytes that are verified only at the end are stored by `finish`.
        """
        if source.is_verified_at_end:
            self.cells.spools.require(span.length)
        position = told_to = span.start
        for cell in self.file.grid.cells(span):
            if told_to < position and not source.is_verified_at_end:
                checkpoint(ByteRange(told_to, position))
            with ExitStack() as spools:
                spool = self.cells.spools.begin(cell.span, may_reuse_file=True)
                spools.enter_context(spool)
                flow = _CellFlow(
                    self, cell, spool, None if source.is_verified_at_end else checkpoint
                )
                with spool_errors():
                    flow.run(source)
                position, told_to = flow.position, flow.told_to
                if source.is_verified_at_end and position > cell.span.start:
                    arrived = Cell(cell.number, ByteRange(cell.span.start, position))
                    self._unverified.append((arrived, spool))
                    spools.pop_all()  # Keep the spool open.
            if position < cell.span.end:
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
            cell, spool = self._unverified.pop(0)
            with spool:
                self.keep(spool, cell.number, cell.span)

    def drop(self) -> None:
        """Discard bytes that were not verified."""
        while self._unverified:
            self._unverified.pop()[1].close()

    def keep(self, spool: Spool, cell: int, span: ByteRange) -> None:
        """Make the bytes of a spool durable, without holding the request's slot."""
        with Stage.SYNC, without_slot():
            self.cells.keep(self.file, cell, spool, span)

    def stop_if_superseded(self) -> None:
        """Raise `WriterSuperseded` if a newer writer of this node has requested the range."""
        if is_takeover_requested(self.lock, self.span):
            raise WriterSuperseded("A newer request writes the same bytes.")

    def stop_if_removed(self) -> None:
        """Raise `BytesLost` if this node knows that the upload has ended."""
        if os.fstat(self.lock).st_nlink == 0:
            raise BytesLost("the file was removed while it was written")


class _CellFlow:
    """Follows the copy of one cell into a spool and stores its bytes.

    Without a `checkpoint` it stores nothing.
    """

    def __init__(
        self, writer: BucketRangeWriter, cell: Cell, spool: Spool, checkpoint: Checkpoint | None
    ) -> None:
        self._writer = writer
        self._cell = cell
        self._spool = spool
        self._copy = SpoolCopy(
            spool, writer.limits, None if checkpoint is None else self._store_and_tell
        )
        self._checkpoint = checkpoint
        self._check_room = writer.cells.spools.room_check(spool)
        self._is_storing = False
        self.told_to = cell.span.start
        now = time.monotonic()
        self._look_at = now + LOOK_SECONDS
        self._due_at = now + writer.checkpoint_seconds

    @property
    def position(self) -> int:
        """End of the bytes received so far, as a position in the file."""
        return self._copy.position

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
        self._check_room(self._copy.spooled)
        if now >= self._due_at:
            self._store_and_tell()
            if self._checkpoint is not None and self._spool.is_wanted:
                self._spool.shrink(FIRST_BYTES)  # Its body is slow, and other requests wait.
                self._copy.begin_again()
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
        """Store the bytes received since the last call, or the whole cell once it is complete."""
        fresh = ByteRange(self.told_to, self.position)
        if self._checkpoint is None or not fresh.length:
            return
        arrived = ByteRange(self._spool.base, self.position)
        is_whole = arrived == self._writer.file.cell(self._cell.number).span
        self._writer.keep(self._spool, self._cell.number, arrived if is_whole else fresh)
