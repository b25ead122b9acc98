"""What a store in a bucket keeps in the database: which objects and parts a file consists of.

`app/records/bucket.py` implements it. Each call is one transaction, on whichever node it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

from app.domain.cells import (
    Claim,
    Garbage,
    Grid,
    Multipart,
    Part,
    Piece,
    Stamp,
    StoredFile,
)
from app.domain.ranges import ByteRange


class Catalog(Protocol):
    """The rows of files, their pieces, parts and claims, and what is to be removed."""

    @property
    def inventory(self) -> Inventory:
        """Listings of everything it has rows for."""
        ...

    def reserve(self, key: str, grid: Grid, length: int | None) -> None:
        """Add a file; if there is one already, its length may only grow."""
        ...

    def file(self, key: str) -> StoredFile | None:
        """A file."""
        ...

    def intend_multipart(self, name: str) -> None:
        """Note that a multipart upload will be begun, which a sweep aborts if it is not noted."""
        ...

    def begin_multipart(self, key: str, multipart: Multipart) -> Multipart | None:
        """Note the multipart upload of a file; returns the one that was noted first.

        None if the file is gone, or is one object already, or if the intent came so long ago that
        a sweep may have aborted the multipart upload.
        """
        ...

    def intend(self, key: str, cell: int, span: ByteRange, name: str) -> int | None:
        """Note that an object with some bytes of a cell will be put; the id of its piece.

        None if the file is gone, or is one object already.
        """
        ...

    def commit(self, piece_id: int, key: str, cell: int, stamp: Stamp) -> int | None:
        """Note that the object is stored; bytes in all pieces of the cell, some of them twice.

        None if it came too late: it may have been removed.
        """
        ...

    def pieces(self, key: str, cell: int) -> list[Piece]:
        """Stored pieces of a cell."""
        ...

    def loose(self, key: str) -> list[Piece]:
        """Stored pieces of a file whose bytes are in no part."""
        ...

    def claim(self, key: str, cell: int, token: str, lease: timedelta) -> Claim | None:
        """Claim a cell; None while somebody else has it, or if the file is gone or one object."""
        ...

    def seal(self, claim: Claim, length: int, stamp: Stamp) -> bool:
        """Note that the cell is stored, and end the claim; False if it was lost meanwhile."""
        ...

    def place(self, key: str, cell: int, number: int, length: int, stamp: Stamp) -> bool:
        """Note a cell that is stored under a number which no claim has.

        It has the bytes of all pieces so far. False if the file is gone, or is one object already.
        """
        ...

    def release(self, claim: Claim) -> None:
        """End a claim that was of no use; harmless if it has ended."""
        ...

    def parts(self, key: str) -> list[Part]:
        """Stored cells of a file, in order."""
        ...

    def part(self, key: str, cell: int) -> Part | None:
        """One stored cell."""
        ...

    def add_whole(self, files: Sequence[tuple[str, str, int]]) -> None:
        """Add files that are one object each, which is put afterwards: key, name and length.

        Those that are one object already stay. Whoever could not put it removes the file.
        """
        ...

    def finish(self, key: str, name: str, length: int, *, is_published: bool) -> bool:
        """Note that one object has all of the file; whether that was new.

        Its pieces and parts are forgotten, and become garbage.
        """
        ...

    def publish(self, keys: Sequence[str]) -> int:
        """Publish files that are one object; how many of them are published now."""
        ...

    def remove(self, key: str, *, also_published: bool) -> list[Garbage]:
        """Forget a file; what to remove from the bucket now. Repeatable."""
        ...

    def remove_unused(self, key: str) -> None:
        """Forget a file of which nothing is stored."""
        ...

    def discard(self, name: str, multipart_id: str | None = None) -> None:
        """Have an object, or an unfinished multipart upload, removed by the next sweep."""
        ...

    def garbage(self, limit: int) -> list[Garbage]:
        """What is due to be removed, among it objects whose lease ended before they were stored."""
        ...

    def collected(self, removed: Collection[Garbage], failed: Collection[Garbage] = ()) -> None:
        """Forget garbage that was removed; what could not be is due again an hour later."""
        ...

    def mend(self, key: str, part: Part, stamp: Stamp | None) -> None:
        """Note that a part has another stamp, or is lost, unless it was replaced meanwhile."""
        ...


class Inventory(Protocol):
    """Listings of all files and objects, for the sweep and for reconciling."""

    def staged(self) -> Iterator[tuple[str, float]]:
        """Keys of unpublished files, and since how many seconds they exist."""
        ...

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        ...

    def shift_activity(self, later: timedelta) -> None:
        """Make unpublished files younger, but not younger than now."""
        ...

    def objects(self) -> Iterator[tuple[str, bool]]:
        """All names of objects that may be in the bucket, in order, and whether they must be."""
        ...

    def is_needed(self, name: str) -> bool:
        """Whether an object of this name must be in the bucket."""
        ...

    def is_known(self, name: str) -> bool:
        """Whether anything refers to an object, or a multipart upload, of this name."""
        ...
