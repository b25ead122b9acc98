"""Files that are still being received into a bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import RawIOBase
from typing import ClassVar

from app.core.errors import UploadError
from app.core.pieces import spans_of_pieces
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits, FileCopy
from app.ingest.slots import without_slot
from app.ingest.source import BodySource
from app.ingest.stages import Stage
from app.storage.base import BytesLost
from app.storage.local.folder import Folder, disk_errors
from app.storage.local.range_lock import lock_range, stop_writer
from app.storage.s3.assembly import Assembly
from app.storage.s3.catalog import FILES
from app.storage.s3.inventory import collect
from app.storage.s3.pieces import PieceReader, PieceStore, new_name, run_all
from app.storage.s3.range_writer import BucketRangeWriter
from app.storage.s3.spool import Spool, spool_errors

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

    give_back: ClassVar[None] = None

    def __init__(self, pieces: PieceStore, assembly: Assembly, locks: Folder) -> None:
        self.locks = locks
        self._pieces = pieces
        self._catalog = pieces.catalog
        self._assembly = assembly
        self._received: dict[str, ReceivedWhole] = {}
        self._putting = ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put")

    def reserve(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Add the file's row; a bucket reserves no space. 0 stands for an unknown length."""
        self._catalog.reserve(key, length or None)

    def enlarge(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Do nothing: a bucket reserves no space."""

    @contextmanager
    def writer(self, key: str, span: ByteRange, limits: BodyLimits) -> Iterator[BucketRangeWriter]:
        """Lock a range of the file on this node while the context lasts."""
        with self._lock_file(key) as lock:
            lock_range(lock, span)
            writer = BucketRangeWriter(
                self._pieces,
                self._catalog.require_open(key),
                span=span,
                lock=lock,
                limits=limits,
                recorded=self._assembly.note,
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
        """Keep a file of one piece in a spool for `sync`; store a longer one as it arrives."""
        told = source.remaining
        end = limit if told is None else min(limit, told)
        position = 0
        for span in spans_of_pieces(ByteRange(0, end), told):
            spool, position = self._arrived(span, source, limits)
            has_ended = position < span.end or position == told
            if span.start == 0 and has_ended:
                self._hold(key, spool, position)
                return position
            with spool:
                if span.start == 0:
                    self._catalog.reserve(key, told)
                if position > span.start:
                    arrived = ByteRange(span.start, position)
                    piece = self._pieces.put(key, arrived, spool.slice(arrived))
                    self._catalog.add_alone(key, [piece])
            if has_ended:
                break
        if position == 0:
            self._hold(key, self._pieces.spools.open(0), 0)
        return position

    def sync(self, keys: Sequence[str]) -> None:
        """Put short files into the bucket in parallel; longer ones are there already."""
        found = {key: self._received.get(key) for key in keys}
        held = {key: whole for key, whole in found.items() if whole and not whole.is_put}
        if held:
            wholes = [(key, each.name, each.length) for key, each in held.items()]
            self._catalog.add_whole(wholes)
            with Stage.SYNC, without_slot():
                run_all(self._putting, self._put, held.values())
        for key, whole in found.items():
            if whole is None:
                self._catalog.require(key)

    def _put(self, whole: ReceivedWhole) -> None:
        body = whole.spool.slice(ByteRange(0, whole.length))
        self._pieces.within(body.length).put_object(whole.name, body)
        whole.is_put = True

    def open(self, key: str) -> RawIOBase:
        """Open a file at its start."""
        held = self._received.get(key)
        if held is not None:
            return held.spool.reader()
        file = self._catalog.require(key)
        if file.is_published:
            raise BytesLost(key)
        return PieceReader(self._pieces, key, file.length)

    def remove(self, key: str) -> None:
        """Remove the file, unless it is published."""
        self.delete(key, also_published=False)

    def delete(self, key: str, *, also_published: bool) -> None:
        """Delete the file's rows, stop this node's writers, and remove its objects.

        Objects that cannot be removed now are left to `collect_garbage`.
        """
        self.let_go(key)
        garbage = self._catalog.remove(key, also_published=also_published)
        with disk_errors():
            self.locks.remove(key)
        with suppress(UploadError):
            collect(self._pieces.bucket, self._catalog.inventory, garbage)

    def let_go(self, key: str) -> None:
        """Free the spool of a file that arrived whole."""
        held = self._received.pop(key, None)  # Atomic: two requests do not close it twice.
        if held is not None:
            held.spool.close()

    def _hold(self, key: str, spool: Spool, length: int) -> None:
        self.let_go(key)
        self._received[key] = ReceivedWhole(new_name(FILES, key), spool, length)

    def _arrived(
        self, span: ByteRange, source: BodySource, limits: BodyLimits
    ) -> tuple[Spool, int]:
        """Returns a spool with the bytes received of a range, and where they end in the file."""
        spool = self._pieces.spools.open(span.start)
        try:
            copy = FileCopy(spool.descriptor, ByteRange(0, span.length), limits)
            with spool_errors():
                copy.run(source, lambda: spool.check_room(copy.position))
        except BaseException:
            spool.close()
            raise
        return spool, span.start + copy.position

    @contextmanager
    def _lock_file(self, key: str) -> Iterator[int]:
        with spool_errors():
            lock = self.locks.open(key, os.O_RDWR | os.O_CREAT)
            os.utime(lock)
        try:
            yield lock
        finally:
            os.close(lock)
