"""Files that are still being received into a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import RawIOBase
from threading import Lock

from app.core.cells import Cell, Grid, StoredFile
from app.core.errors import NoRoom, UploadError
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits
from app.ingest.slots import without_slot
from app.ingest.source import BodySource
from app.ingest.stages import Stage
from app.storage.base import BytesLost, has_same_bytes
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import WHOLE_FILE, lock_range, stop_writer, try_lock
from app.storage.s3.assembly import Assembly
from app.storage.s3.cells import CellStore, limit_seconds, new_name
from app.storage.s3.piece_reader import PieceReader, contains
from app.storage.s3.range_writer import BucketRangeWriter
from app.storage.s3.spool import Spool, SpoolCopy, spool_errors

PUTS_AT_ONCE = 8
"""Number of small files that a process sends to the bucket in parallel."""


@dataclass(slots=True)
class ReceivedWhole:
    """A short file that has arrived whole, in a spool; `is_put` once it is also in the bucket.

    `name` is the name of its object, the same for every attempt.
    """

    name: str
    spool: Spool
    length: int
    is_put: bool = False


class BucketStaging:
    """Implements `Staging` in a bucket. Writers on one node take over with locks in `locks`."""

    def __init__(
        self,
        cells: CellStore,
        assembly: Assembly,
        locks: Folder,
        *,
        checkpoint_seconds: float,
        smallest_cell_bytes: int,
    ) -> None:
        self.locks = locks
        self._cells = cells
        self._catalog = cells.catalog
        self._assembly = assembly
        self._checkpoint_seconds = checkpoint_seconds
        self._smallest_cell_bytes = smallest_cell_bytes
        self._received: dict[str, ReceivedWhole] = {}
        self._putting = ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put")
        self._changing = Lock()

    def reserve(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Add the file's row; a bucket reserves no space. A length of 0 may still grow."""
        self._catalog.reserve(key, self._grid(length or None), length or None)

    def enlarge(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Raise `NoRoom` if the file would need more cells than the grid has."""
        if length > Grid.of(None).capacity:
            raise NoRoom("The file is longer than the limit for files of unknown length.")

    @contextmanager
    def writer(self, key: str, span: ByteRange, limits: BodyLimits) -> Iterator[BucketRangeWriter]:
        """Lock a range of the file on this node while the context lasts."""
        with self._lock_file(key) as lock:
            lock_range(lock, span)
            writer = BucketRangeWriter(
                cells=self._cells,
                file=self._catalog.require_open(key),
                span=span,
                lock=lock,
                limits=limits,
                checkpoint_seconds=self._checkpoint_seconds,
            )
            try:
                yield writer
            finally:
                writer.drop()

    def stop_writer(self, key: str, position: int) -> None:
        """Wait for this node's writer at the position; other nodes' bytes are in the record."""
        self._catalog.require_open(key)
        with self._lock_file(key) as lock:
            stop_writer(lock, position)

    def receive(self, key: str, source: BodySource, limit: int, limits: BodyLimits) -> int:
        """Keep a file of up to one cell in a spool for `sync`; store a longer one as it arrives."""
        told = source.remaining
        file = StoredFile(key, self._grid(told), None, None, is_published=False, multipart=None)
        position = 0
        for cell in file.grid.cells(ByteRange(0, min(limit, limit if told is None else told))):
            spool, end = self._arrived(cell, source, limits)
            has_ended = end < cell.span.end or end == told
            if cell.number == 0 and has_ended:
                spool.shrink(end)
                self._hold(key, spool, end)
                return end
            with spool:
                if cell.number == 0:
                    self._catalog.remove_unused(key)  # It may have been reserved with another grid.
                    self._catalog.reserve(key, file.grid, told)
                if end > cell.span.start:
                    known = replace(file, length=end if has_ended else None)
                    self._cells.keep(known, cell.number, spool, ByteRange(cell.span.start, end))
            position = end
            if has_ended:
                break
        if position == 0:
            self._hold(key, self._cells.spools.open(ByteRange(0, 0)), 0)
        return position

    def sync(self, keys: Sequence[str]) -> None:
        """Put short files into the bucket in parallel; longer ones are there already."""
        self.put_received(keys)
        for key in keys:
            if key not in self._received:
                self._catalog.require(key)

    def put_received(self, keys: Sequence[str]) -> None:
        """Put the files that are waiting in a spool."""
        found = {key: self._received.get(key) for key in keys}
        held = {key: whole for key, whole in found.items() if whole and not whole.is_put}
        if not held:
            return
        self._catalog.add_whole([(key, each.name, each.length) for key, each in held.items()])

        def put(whole: ReceivedWhole) -> None:
            body = whole.spool.slice(ByteRange(0, whole.length))
            self._cells.bucket.within(limit_seconds(body.length)).put_object(whole.name, body)
            whole.is_put = True

        with Stage.SYNC, without_slot():
            puts = [self._putting.submit(put, whole) for whole in held.values()]
            wait(puts)  # If one fails, all spools are closed: none may be in use.
            for each in puts:
                each.result()

    def open(self, key: str) -> RawIOBase:
        """Open a file; cells that arrived whole can be read only once the file is complete."""
        held = self._received.get(key)
        if held is not None:
            return held.spool.reader()
        file = self._require_unpublished(key)
        return PieceReader(self._cells, file) if file.name is None else self._assembly.open(key)

    def contains(self, key: str, start: int, ours: RawIOBase, length: int) -> bool:
        """Compare the bytes of `ours` with the stored ones."""
        file = self._require_unpublished(key)
        if file.name is None:
            return contains(self._cells, file, start, ours, length)
        with self._assembly.open(key) as stored:
            stored.seek(start)
            return has_same_bytes(ours, stored, length)

    def open_complete(self, key: str, length: int) -> RawIOBase:
        """Open a file whose bytes have all arrived, at its start; makes it one object first."""
        held = self._received.get(key)
        if held is not None:
            return held.spool.reader()
        self._assembly.assemble(key, length, is_published=False)
        return self._assembly.open(key)

    def give_back(self, key: str, is_unused: Callable[[], bool]) -> None:
        """Drop a file without stored bytes and without writers on this node."""
        with self._lock_file(key) as lock:
            if try_lock(lock, WHOLE_FILE) and is_unused():
                self._catalog.remove_unused(key)

    def remove(self, key: str) -> None:
        """Remove the file, unless it is published."""
        self.delete(key, also_published=False)

    def delete(self, key: str, *, also_published: bool) -> None:
        """Delete the file's rows, stop this node's writers, and remove its objects.

        Objects that cannot be removed now are left to the sweep.
        """
        self.let_go(key)
        garbage = self._catalog.remove(key, also_published=also_published)
        with disk_errors():
            self.locks.remove(key)
        with suppress(UploadError):
            self._assembly.collect(garbage)

    def let_go(self, key: str) -> None:
        """Free the spool of a file that arrived whole."""
        with self._changing:
            held = self._received.pop(key, None)
        if held is not None:
            held.spool.close()

    def _grid(self, length: int | None) -> Grid:
        return Grid.of(length, smallest=self._smallest_cell_bytes)

    def _hold(self, key: str, spool: Spool, length: int) -> None:
        self.let_go(key)
        with self._changing:
            self._received[key] = ReceivedWhole(new_name("files", key), spool, length)

    def _arrived(self, cell: Cell, source: BodySource, limits: BodyLimits) -> tuple[Spool, int]:
        """Returns a spool with the bytes received for one cell, and their end in the file."""
        spool = self._cells.spools.begin(cell.span)
        try:
            copy = SpoolCopy(spool, limits)
            with spool_errors():
                check_room = self._cells.spools.room_check(spool)
                copy.run(source, lambda: check_room(copy.spooled))
        except BaseException:
            spool.close()
            raise
        return spool, copy.position

    def _require_unpublished(self, key: str) -> StoredFile:
        """Returns an unpublished file; raises `BytesLost` if there is none."""
        file = self._catalog.require(key)
        if file.is_published:
            raise BytesLost(key)
        return file

    @contextmanager
    def _lock_file(self, key: str) -> Iterator[int]:
        with spool_errors():
            lock = self.locks.open(key, os.O_RDWR | os.O_CREAT)
            os.utime(lock)
        try:
            yield lock
        finally:
            os.close(lock)
