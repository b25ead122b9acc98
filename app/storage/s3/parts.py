"""Makes the parts of the multipart upload that becomes a file's object, from its pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import islice
from threading import Semaphore, Thread
from typing import TypeVar

from app.core.pieces import (
    SMALLEST_PART_BYTES,
    Checksums,
    Multipart,
    Part,
    Piece,
    Taken,
    is_whole,
    part_bytes,
    planned_parts,
    span_of,
)
from app.ingest.slots import without_slot
from app.storage.base import BytesLost
from app.storage.s3.pieces import PieceStore

PARTS_AT_ONCE = 4
"""Number of parts that a process makes in parallel."""

S = TypeVar("S")
T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class PartMaker:
    """Makes the parts of a file of `length` bytes in order, several at once."""

    pieces: PieceStore
    key: str
    token: str
    """Of the file's lease."""
    multipart: Multipart
    length: int
    threads: DaemonThreads

    def make(self, most: int | None = None) -> None:
        """Make and record the missing parts, or `most` of them, up to the first missing byte.

        Raises `LeaseLost`, `MultipartGone`, and `BytesLost` if the object of a piece is missing.
        """
        key, catalog = self.key, self.pieces.catalog
        last = catalog.last_part(key)
        number, start = (last.number, last.end) if last else (0, 0)
        taken = self.pieces.all_taken(key, start, self.length)
        least = part_bytes(self.length)
        groups = islice(planned_parts(taken, start, least=least, length=self.length), most)
        while planned := dict(enumerate(islice(groups, PARTS_AT_ONCE), number + 1)):
            with without_slot():
                checksums = self._copied(planned)
                missing = {
                    number: group for number, group in planned.items() if number not in checksums
                }
                checksums |= self._all_of(self._upload, missing)
            made = [
                Part(number, span_of(group).end, checksums[number])
                for number, group in planned.items()
            ]
            catalog.add_parts(key, self.token, made)
            number += len(made)

    def _copied(self, planned: Mapping[int, list[Taken]]) -> dict[int, Checksums]:
        """Copy whole pieces inside the store; returns the parts that have their checksums.

        The checksum is in the answer, or only in the list of parts, as with Garage.
        """
        whole = {
            number: group[0][0]
            for number, group in planned.items()
            if len(group) == 1
            and is_whole(group[0])
            and span_of(group).length >= SMALLEST_PART_BYTES
        }
        copies = self._all_of(self._copy, whole)
        if not all(copied.crc32c for copied in copies.values()):
            listed = self.pieces.bucket.list_parts(
                self.multipart.name, self.multipart.id, first=min(planned), at_once=len(planned)
            )
            copies |= {
                part.number: part.stored
                for part in islice(listed, len(planned))
                if part.number in copies
            }
        return {
            number: copied
            for number, copied in copies.items()
            if copied.crc32c == whole[number].crc32c
        }

    def _copy(self, number: int, piece: Piece) -> Checksums:
        bucket = self.pieces.within(piece.span.length)
        try:
            return bucket.copy_part(self.multipart.name, self.multipart.id, number, piece.name)
        except FileNotFoundError as error:
            raise BytesLost(piece.name) from error

    def _upload(self, number: int, group: list[Taken]) -> Checksums:
        span = span_of(group)
        with self.pieces.collect(group) as spool:
            return self.pieces.within(span.length).upload_part(
                self.multipart.name, self.multipart.id, number, spool.slice(span)
            )

    def _all_of(self, make: Callable[[int, S], T], planned: Mapping[int, S]) -> dict[int, T]:
        """Make parts in parallel; waits for all even if one fails.

        Once another node has the lease, no part but these may be replaced, which it notices when it
        completes the object.
        """
        running = {
            number: self.threads.submit(make, number, each) for number, each in planned.items()
        }
        wait(running.values())
        return {number: future.result() for number, future in running.items()}
