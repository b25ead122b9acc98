"""Makes one object of a file's pieces: one node at a time, and while the file still arrives.

The holder of the file's lease copies pieces into the parts of a multipart upload, from the first
byte on, and records each part. When the lease of a killed node ends, another one goes on after
those parts. If the store's parts are not the recorded ones, as when a node that was paused has
replaced one, a new multipart upload is begun.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from threading import Event, Semaphore, Thread
from typing import TypeVar

from app.core.errors import ServerBusy, StorageFailed, UploadError
from app.core.pieces import (
    PIECE_BYTES,
    SMALLEST_PART_BYTES,
    UNKNOWN_ID,
    Garbage,
    Multipart,
    Part,
    Piece,
    Stamp,
    StoredFile,
    Taken,
    is_whole,
    part_bytes,
    planned_parts,
    span_of,
    spans_of_pieces,
)
from app.core.ranges import ByteRange, RangeSet
from app.ingest.slots import without_slot
from app.storage.base import BytesLost
from app.storage.s3.caller import MultipartGone, PartsDiffer
from app.storage.s3.catalog import DIRECT, FILES
from app.storage.s3.pieces import PieceReader, PieceStore, new_name

LEASE_SECONDS = 30.0
RENEWED_SECONDS = 10.0
"""How long a lease outlives its node, and how often it is renewed."""

WAIT_SECONDS = LEASE_SECONDS + 5
"""How long to wait for another node that makes the object: long enough for its lease to end."""

COMPLETING_SECONDS = 600.0
"""Time limit for completing an object of 10,000 parts: some stores copy the bytes, 1 GB in 6 s."""

PARTS_AT_ONCE = 4
"""Number of parts that a process makes in parallel."""

COMPLETION_TRIES = 3

EARLY_BYTES = 8 * PIECE_BYTES
"""How often, in bytes that have arrived, parts are made of an unfinished file."""

MOST_EARLY_PARTS = 64
"""Parts made at once of an unfinished file, so that others get their turn."""

_POLL_SECONDS = 0.1

T = TypeVar("T")

log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another node makes the object now."""


class Assembly:
    """Makes objects of pieces, and removes leftover objects."""

    def __init__(self, pieces: PieceStore) -> None:
        self._pieces = pieces
        self._catalog = pieces.catalog
        self._bucket = pieces.bucket
        self._making = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="part")
        self._early, self._making_early = DaemonThreads(1), DaemonThreads(PARTS_AT_ONCE)
        self._are_early = set[str]()

    # ---- whole files

    def publish(self, key: str, length: int) -> None:
        """Make the file one object of `length` bytes, and publish it. Repeatable.

        Raises `BytesLost` if the file does not have `length` bytes, and `ServerBusy` if another
        node takes too long for it.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while (file := self._catalog.require(key)).name is None:
            try:
                if self._finish_short(file, length) or self._finish_leased(file, length):
                    continue
            except BytesLost:
                if self._catalog.require(key).name is None:
                    raise
                continue  # Another node has just finished it, so its pieces are gone.
            if time.monotonic() > deadline:
                raise ServerBusy("Another server still makes one object of the file.")
            with without_slot():
                time.sleep(_POLL_SECONDS)
        if file.length != length:
            raise BytesLost(key)
        if not file.is_published:
            self._catalog.publish([key])

    def _finish_short(self, file: StoredFile, length: int) -> bool:
        """Whether the file is one object already, as it has no bytes or a piece with all of them.

        A client could replace a piece that it has put itself.
        """
        whole = ByteRange(0, length)
        if not length:
            name = self._pieces.put(file.key, whole, b"").name
        elif length > PIECE_BYTES:
            return False
        else:
            taken, _ = self._pieces.taken(file.key, whole)
            if len(taken) != 1 or taken[0][1] != whole or not is_whole(taken[0]):
                return False
            name = taken[0][0].name
            if name.startswith(DIRECT):
                return False
        return self._catalog.finish(file.key, name, length)

    def _finish_leased(self, file: StoredFile, length: int) -> bool:
        """Finish the file; False if another node, or another thread, has or gets its lease."""
        with self._leased(file.key) as lease:
            if lease is None:
                return False
            try:
                self._finish(file, length, lease)
            except LeaseLost:
                return False
        return True

    def _finish(self, file: StoredFile, length: int, lease: Lease) -> None:
        for _ in range(COMPLETION_TRIES):
            file = self._catalog.require(file.key)
            if file.name is not None:
                return
            multipart = file.multipart or self._begin(file, lease)
            with suppress(PartsDiffer):
                if self._complete(replace(file, length=length), multipart, lease):
                    if not self._catalog.finish(file.key, multipart.name, length, lease.token):
                        raise LeaseLost
                    return
            log.warning("the parts of a file are made again", extra={"upload_id": file.key})
            self._catalog.forget_multipart(file.key, lease.token)
        raise StorageFailed("The object store does not have the parts that it has confirmed.")

    def _complete(self, file: StoredFile, multipart: Multipart, lease: Lease) -> bool:
        """Make the missing parts and complete the object; False if its parts are gone."""
        try:
            self._make_parts(file, multipart, lease)
            parts = self._catalog.parts(file.key)
            if not parts or parts[-1].end != file.length:
                if self._has_all(file.key, file.length or 0):
                    raise LeaseLost  # Another node has begun with other parts.
                raise BytesLost(file.key)
            wanted = [(part.number, part.stamp) for part in parts]
            with without_slot():
                self._bucket.within(COMPLETING_SECONDS).complete_multipart(
                    multipart.name, multipart.id, wanted
                )
        except MultipartGone:
            # It may have been completed by a node that was killed before it could record that.
            found = self._bucket.head(multipart.name)
            return found is not None and found.length == file.length
        return True

    # ---- parts

    def note(self, file: StoredFile, span: ByteRange) -> None:
        """Make parts of an unfinished file now and then, as its bytes arrive.

        A process that ends does not wait for them. Its lease then ends by itself.
        """
        is_long = file.length is not None and file.length > EARLY_BYTES
        is_due = is_long and span.start // EARLY_BYTES != span.end // EARLY_BYTES
        if is_due and file.key not in self._are_early:
            self._are_early.add(file.key)
            self._early.submit(self._make_early_parts, file.key)

    def _make_early_parts(self, key: str) -> None:
        self._are_early.discard(key)
        try:
            with self._leased(key) as lease:
                if lease is None:
                    return
                file = self._catalog.require_open(key)
                multipart = file.multipart or self._begin(file, lease)
                self._make_parts(file, multipart, lease, is_early=True)
        except (LeaseLost, MultipartGone, BytesLost):
            return  # Another request has finished or ended the upload.
        except UploadError as error:
            log.warning("parts are made later: %s", error, extra={"upload_id": key})

    def _make_parts(
        self, file: StoredFile, multipart: Multipart, lease: Lease, *, is_early: bool = False
    ) -> None:
        """Make the missing parts of a file with a length; those `is_early` are limited in number.

        Stops at the first missing byte.
        """
        threads, most = (self._making_early, MOST_EARLY_PARTS) if is_early else (self._making, None)
        last, length = self._catalog.last_part(file.key), file.length or 0
        number, start = (last.number, last.end) if last else (0, 0)
        taken = self._all_taken(file.key, start, length)
        planned = islice(planned_parts(taken, start, least=part_bytes(length), length=length), most)
        while groups := [*islice(planned, PARTS_AT_ONCE)]:
            with without_slot():
                made = self._parts_of(groups, multipart, threads, first=number + 1)
            if lease.is_lost or not self._catalog.add_parts(file.key, lease.token, made):
                raise LeaseLost
            number += len(made)

    def _all_taken(self, key: str, start: int, length: int) -> Iterator[Taken]:
        while start < length:
            taken, end = self._pieces.taken(key, ByteRange(start, length))
            yield from taken
            start = end

    def _parts_of(
        self,
        groups: Sequence[Sequence[Taken]],
        multipart: Multipart,
        threads: ThreadPoolExecutor | DaemonThreads,
        *,
        first: int,
    ) -> list[Part]:
        """Make parts with consecutive numbers, by copies inside the store where these are proven.

        A copy is proven by the checksum in its answer, or in the store's list of parts, as Garage
        has it there alone. Where neither is right, the pieces are read.
        """
        name, multipart_id = multipart.name, multipart.id
        planned = dict(enumerate(groups, first))

        def copy(number: int) -> Stamp | None:
            return self._copied(planned[number], (name, multipart_id, number))

        def upload(number: int) -> Stamp:
            span = span_of(planned[number])
            with self._pieces.collect(planned[number]) as spool:
                bucket = self._pieces.within(span.length)
                return bucket.upload_part(name, multipart_id, number, spool.slice(span))

        made = dict(zip(planned, _all_of(threads, copy, planned), strict=True))
        copies = {number: stamp for number, stamp in made.items() if stamp is not None}
        if not all(stamp.crc32c for stamp in copies.values()):
            listed = self._bucket.list_parts(name, multipart_id, first=first, at_once=len(planned))
            copies |= {
                part.number: part.stored
                for part in islice(listed, len(planned))
                if part.number in copies
            }
        stamps = {
            number: stamp
            for number, stamp in copies.items()
            if stamp.crc32c == planned[number][0][0].crc32c
        }
        missing = [number for number in planned if number not in stamps]
        stamps |= zip(missing, _all_of(threads, upload, missing), strict=True)
        return [Part(number, span_of(planned[number]).end, stamps[number]) for number in planned]

    def _copied(self, group: Sequence[Taken], target: tuple[str, str, int]) -> Stamp | None:
        """Copy a whole piece inside the store; None if it must be read."""
        piece, span = group[0]
        if len(group) > 1 or not is_whole(group[0]) or span.length < SMALLEST_PART_BYTES:
            return None
        try:
            return self._pieces.within(span.length).copy_part(*target, piece.name)
        except FileNotFoundError as error:
            raise BytesLost(piece.name) from error

    def _begin(self, file: StoredFile, lease: Lease) -> Multipart:
        def announced_name() -> str:
            """A sweep aborts the multipart upload with this name unless it becomes the file's."""
            name = new_name(FILES, file.key)
            self._catalog.announce_multipart(name)
            return name

        own = Multipart(*self._bucket.create_named_multipart(announced_name))
        if not self._catalog.begin_multipart(file.key, lease.token, own):
            raise LeaseLost
        return own

    @contextmanager
    def _leased(self, key: str) -> Iterator[Lease | None]:
        """Hold the lease of a file; yields None while another node or thread has it."""
        lease = Lease(self._pieces, key)
        try:
            is_ours = lease.take()
        except UploadError:  # It may be ours although the answer was lost.
            is_ours = lease.take()
        if not is_ours:
            yield None
            return
        with lease.renewed():
            yield lease

    # ---- concatenations

    def concatenate(self, key: str, sources: Sequence[tuple[str, int]]) -> None:
        """Give a file the pieces of others, given with their lengths. Repeatable.

        Objects that hold other bytes as well are read and put again. Raises `BytesLost` if one of
        the others is missing.
        """
        file = self._catalog.require(key)
        length = sum(length for _, length in sources)
        if file.name is not None or self._has_all(key, length):
            return
        shared, position = dict[str, list[Piece]](), 0
        for source_key, source_length in sources:
            for taken in self._taken_of(source_key, source_length):
                piece, span = taken
                if is_whole(taken) and piece.crc32c:
                    moved = ByteRange(position + span.start, position + span.end)
                    shared.setdefault(source_key, []).append(replace(piece, id=0, span=moved))
                else:
                    self._put_again(key, source_key, span, position)
            position += source_length
        self._catalog.share(key, shared)

    def _taken_of(self, key: str, length: int) -> list[Taken]:
        """Where all bytes of a file are; raises `BytesLost` if some are missing."""
        whole, file = ByteRange(0, length), self._catalog.require(key)
        if file.name is not None:
            return [(Piece(0, whole, file.name, ""), whole)]
        found = [*self._all_taken(key, 0, length)]
        if not RangeSet.of(span for _, span in found).covers(whole):
            raise BytesLost(key)
        return found

    def _has_all(self, key: str, length: int) -> bool:
        taken = self._all_taken(key, 0, length)
        return RangeSet.of(span for _, span in taken).covers(ByteRange(0, length))

    def _put_again(self, key: str, source_key: str, span: ByteRange, position: int) -> None:
        """Put bytes of another file as pieces; its first byte is the one at `position`."""
        file = self._catalog.require(source_key)
        with PieceReader(self._pieces, source_key, file.length) as source:
            for part in spans_of_pieces(span, length=span.end):
                source.seek(part.start)
                with self._pieces.spools.open(part.start) as spool:
                    spool.fill(source, part.length)
                    moved = ByteRange(position + part.start, position + part.end)
                    piece = self._pieces.put(key, moved, spool.slice(part))
                self._catalog.add_alone(key, [piece])

    # ---- garbage

    def collect(self, garbage: Sequence[Garbage]) -> None:
        """Remove unneeded objects and multipart uploads, and delete their rows.

        Objects that the store refuses to remove are retried an hour later. If the store stops
        responding, so is everything left, and this raises `ServerBusy`.
        """
        objects = [each for each in garbage if each.multipart_id is None]
        removed = set[Garbage]()
        try:
            with suppress(StorageFailed):  # If one cannot be removed, each is tried alone.
                self._bucket.delete(*(each.name for each in objects))
                removed.update(objects)
            for each in garbage:
                if each in removed:
                    continue
                with suppress(StorageFailed):
                    if each.multipart_id is None:
                        self._bucket.delete(each.name)
                    elif each.multipart_id == UNKNOWN_ID:
                        for begun in self._bucket.list_multiparts(each.name):
                            self._bucket.abort_multipart(begun.name, begun.id)
                    else:
                        self._bucket.abort_multipart(each.name, each.multipart_id)
                        self._bucket.delete(each.name)  # It may be complete, without a record.
                    removed.add(each)
        finally:
            if garbage:
                self._catalog.collected(removed, [each for each in garbage if each not in removed])


class DaemonThreads:
    """Runs calls like `ThreadPoolExecutor`, but the process ends without waiting for them."""

    def __init__(self, most: int) -> None:
        self._free = Semaphore(most)

    def submit(self, call: Callable[..., T], *args: object) -> Future[T]:
        """Run a call once a thread is free."""
        future = Future[T]()

        def run() -> None:
            with self._free:
                try:
                    future.set_result(call(*args))
                except BaseException as error:  # noqa: BLE001 - for the caller
                    future.set_exception(error)

        Thread(target=run, daemon=True).start()
        return future


def _all_of(
    threads: ThreadPoolExecutor | DaemonThreads, make: Callable[[int], T], numbers: Iterable[int]
) -> list[T]:
    """Like `map` in parallel, but waits for all even if one fails.

    None may go on, and replace a part, once another node has the lease.
    """
    running = [threads.submit(make, number) for number in numbers]
    wait(running)
    return [each.result() for each in running]


class Lease:
    """The right to make a file one object, renewed by a thread while its context lasts."""

    def __init__(self, pieces: PieceStore, key: str) -> None:
        self.token = secrets.token_hex(16)
        self.is_lost = False
        self._catalog = pieces.catalog
        self._key = key
        self._ends_at = 0.0

    def take(self) -> bool:
        """Take or renew the lease; returns whether this node has it."""
        ends_at = time.monotonic() + LEASE_SECONDS
        is_ours = self._catalog.lease(self._key, self.token, LEASE_SECONDS)
        self._ends_at = ends_at if is_ours else 0.0
        return is_ours

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the lease until the context ends, and release it then."""
        is_over = Event()

        def renew() -> None:
            while not is_over.wait(RENEWED_SECONDS):
                try:
                    self.is_lost = not self.take()
                except UploadError:
                    self.is_lost = time.monotonic() > self._ends_at
                if self.is_lost:
                    return

        thread = Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()  # It must not take the lease again.
            with suppress(UploadError):  # If this fails, the lease expires.
                self._catalog.release(self._key, self.token)
