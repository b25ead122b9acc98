"""Assembles a file's parts and pieces into one object; several nodes may try at the same time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from io import RawIOBase

from app.core.cells import (
    UNKNOWN_ID,
    Garbage,
    Multipart,
    Part,
    Piece,
    Stamp,
    StoredFile,
    covers,
    overlay,
    unread_crc32c,
)
from app.core.errors import ServerBusy, StorageFailed
from app.core.ranges import ByteRange
from app.ingest.slots import without_slot
from app.storage.base import BytesLost
from app.storage.s3.caller import MultipartGone, PartsDiffer
from app.storage.s3.cells import CellStore
from app.storage.s3.spool import NoSpoolRoom

SEALING_SECONDS = 120.0
"""How long to keep trying without a new part: other nodes may join pieces, or spools are full."""

COMPLETING_SECONDS = 600.0
"""Time limit for completing an object of 10,000 parts: some stores copy the bytes, 1 GB in 6 s."""

PARTS_AT_ONCE = 4
"""Number of parts that a process makes in parallel from pieces or other files."""

COMPLETION_TRIES = 3
"""Attempts at completion. Between them, parts are compared and, where possible, made again."""

NO_STAMP = Stamp("", "")
"""Whole objects are not compared."""

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Whole:
    """The object that contains the whole file; `crc32c` as in `StoredFile`."""

    name: str
    crc32c: str | None = None


class Assembly:
    """Turns cells into one object and removes leftover objects."""

    def __init__(self, cells: CellStore) -> None:
        self._cells = cells
        self._catalog = cells.catalog
        self._bucket = cells.bucket
        self._filling = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="fill")

    def open(self, key: str) -> RawIOBase:
        """Open a file that is one object, published or not; raises `BytesLost`."""
        file = self._catalog.require(key)
        if file.name is None or file.length is None:
            raise BytesLost(key)
        try:
            return self._bucket.open(file.name, ByteRange(0, file.length), file.length)
        except FileNotFoundError as error:
            raise BytesLost(key) from error

    def assemble(self, key: str, length: int, *, is_published: bool) -> Whole:
        """Make the file one object of `length` bytes; returns the object. Repeatable.

        Raises `BytesLost` if the file does not have `length` bytes.
        """
        file: StoredFile | None = self._catalog.require(key)
        whole = None
        if file and file.name is None:
            try:
                whole = self._object_of(replace(file, length=length))
            except BytesLost:
                # Its parts may be gone because another request has completed the object.
                whole = self._completed(key, length)
            if whole and self._catalog.finish(
                key, whole.name, length, is_published=is_published, crc32c=whole.crc32c
            ):
                return whole
            file = self._catalog.file(key)
        if file is None and whole:
            # The file may have been removed before this object was completed.
            self._catalog.discard(whole.name)
        if file is None or file.name is None or file.length != length:
            raise BytesLost(key)
        if is_published and not file.is_published:
            self._catalog.publish([key])
        return Whole(file.name, file.crc32c)

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

    def _completed(self, key: str, length: int) -> Whole | None:
        """Returns the object of a multipart upload that was completed but not recorded."""
        file = self._catalog.file(key)
        if file is None or file.name is not None or file.multipart is None:
            return None
        found = self._bucket.head(file.multipart.name)
        if found is None or found.length != length:
            return None
        return Whole(file.multipart.name, unread_crc32c(self._catalog.parts(key)))

    def _object_of(self, file: StoredFile) -> Whole:
        """Complete the multipart upload; for one cell, use a piece with all bytes, or make one."""
        whole = ByteRange(0, file.length or 0)
        if whole.length > file.grid.first_bytes:
            return self._complete(file, whole)
        if not whole.length:
            return Whole(self._cells.put_piece(file.key, 0, whole, b"").name)
        parts = self._catalog.parts(file.key) if file.multipart else []
        if any(part.length == whole.length for part in parts):
            return self._complete(file, whole)
        pieces = self._catalog.pieces(file.key, 0)
        taken = overlay(pieces, whole)
        if len(taken) == 1 and taken[0][0].span == whole:
            return Whole(taken[0][0].name)
        if not covers(pieces, whole):
            raise BytesLost(file.key)
        with self._cells.joined(pieces, whole) as spool:
            return Whole(self._cells.put_piece(file.key, 0, whole, spool.slice(whole)).name)

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """Make the cells of a file from other files, given with their lengths. Repeatable.

        Raises `BytesLost` if one of the other files is missing.
        """
        file = self._catalog.require(key)
        if file.name is None:
            try:
                self._concatenate(file, parts)
            except BytesLost:
                if self._catalog.require(key).name is None:
                    raise
                # Another request has finished the file, and its parts are gone.

    def _concatenate(self, file: StoredFile, parts: Sequence[tuple[str, int]]) -> None:
        sources, position = list[Piece](), 0
        for number, (key, length) in enumerate(parts):  # As pieces of the concatenated file.
            name = self.assemble(key, length, is_published=False).name
            span = ByteRange(position, position + length)
            if length:
                sources.append(Piece(number, 0, span, name, NO_STAMP))
            position = span.end
        whole = ByteRange(0, position)
        file = replace(file, length=whole.length)
        if whole.length > file.grid.first_bytes:
            self._fill(
                lambda: self._missing(file, whole),
                lambda cell: self._cells.compose(file, cell, sources),
            )
        elif whole.length and not covers(self._catalog.pieces(file.key, 0), whole):
            with self._cells.joined(sources, whole) as spool:
                self._cells.put_piece(file.key, 0, whole, spool.slice(whole))

    def _fill(self, missing: Callable[[], list[int]], fill: Callable[[int], bool]) -> None:
        """Make parts until none is missing; other nodes may do the same."""
        fewest, deadline = math.inf, 0.0

        def try_to_fill(cell: int) -> bool:
            try:
                return fill(cell)
            except NoSpoolRoom:  # Other parts use the room now.
                return False

        while cells := missing():
            if len(cells) < fewest:
                fewest, deadline = len(cells), time.monotonic() + SEALING_SECONDS
            elif time.monotonic() > deadline:
                raise ServerBusy("The file's parts could not be made in time.")
            if all([*self._filling.map(try_to_fill, cells)]):
                continue
            with without_slot():
                time.sleep(_POLL_SECONDS)

    def _missing(self, file: StoredFile, whole: ByteRange) -> list[int]:
        """Cells without a part."""
        stored = {part.cell: part.length for part in self._catalog.parts(file.key)}
        return [
            cell.number
            for cell in file.grid.cells(whole)
            if stored.get(cell.number) != cell.span.length
        ]

    def _unsealed(self, file: StoredFile, whole: ByteRange) -> list[int]:
        """Cells whose part must be made from pieces; raises `BytesLost` if bytes are missing.

        A part stays if the newer pieces do not cover its cell: two requests sent the same bytes.
        """
        missing = set(self._missing(file, whole))
        loose = {piece.cell for piece in self._catalog.loose(file.key)}
        found = []
        for number in sorted(missing | loose):
            span = file.cell(number).span
            if span.length and covers(self._catalog.pieces(file.key, number), span):
                found.append(number)
            elif number in missing:
                raise BytesLost(file.key)
        return found

    def _complete(self, file: StoredFile, whole: ByteRange) -> Whole:
        """Complete the multipart upload; makes missing parts from pieces. Raises `BytesLost`."""
        for _ in range(COMPLETION_TRIES):
            self._fill(
                lambda: self._unsealed(file, whole), lambda cell: self._cells.seal(file, cell)
            )
            stored = {part.cell: part for part in self._catalog.parts(file.key)}
            try:
                parts = [stored[cell.number] for cell in file.grid.cells(whole)]
            except KeyError:  # Another request has just finished the file.
                raise BytesLost(file.key) from None
            # Sealing may have begun the multipart upload.
            multipart = self._catalog.require(file.key).multipart
            if multipart is None:
                raise BytesLost(file.key)
            try:
                wanted = [(part.number, part.stamp) for part in parts]
                bucket = self._bucket.within(COMPLETING_SECONDS)
                bucket.complete_multipart(multipart.name, multipart.id, wanted)
                return Whole(multipart.name, unread_crc32c(parts))
            except MultipartGone as error:
                raise BytesLost(file.key) from error
            except PartsDiffer:
                self._mend(file.key, multipart, parts)
        raise StorageFailed("The object store does not have the parts that it has confirmed.")

    def _mend(self, key: str, multipart: Multipart, parts: Sequence[Part]) -> None:
        """Drop parts that differ from the confirmed ones: a late request may have replaced one."""
        listed = {
            each.number: each for each in self._bucket.list_parts(multipart.name, multipart.id)
        }
        for part in parts:
            found = listed.get(part.number)
            if found is not None and found.stored.etag == part.stamp.etag:
                continue
            # If the store encrypts, the same bytes may get another ETag, but never another CRC.
            is_same = (
                found is not None
                and found.length == part.length
                and found.stored.crc32c == part.stamp.crc32c != ""
            )
            new = found.stored if found and is_same else None
            self._catalog.mend(key, part, new)
