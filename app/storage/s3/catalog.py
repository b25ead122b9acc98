"""The bucket store's part of the database: which objects and parts a file consists of.

`app/records/bucket.py` implements it. Each call takes effect in full or not at all, on whichever
node it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

from app.core.cells import (
    Claim,
    Garbage,
    Grid,
    Multipart,
    Part,
    Piece,
    PieceTotals,
    Stamp,
    StoredFile,
)
from app.core.ranges import ByteRange


class Catalog(Protocol):
    """The rows of files, their pieces, parts and claims, and what is to be removed."""

    @property
    def inventory(self) -> Inventory:
        """Listings of everything it has rows for."""
        ...

    def reserve(self, key: str, grid: Grid, length: int | None) -> None:
        """Add a file; the length of an existing one may only grow."""
        ...

    def file(self, key: str) -> StoredFile | None:
        """A file."""
        ...

    def intend_multipart(self, name: str) -> None:
        """Announce a multipart upload; a sweep aborts it unless `begin_multipart` records it."""
        ...

    def begin_multipart(self, key: str, multipart: Multipart) -> Multipart | None:
        """Record the multipart upload of a file; returns the one that was recorded first.

        None if the file is gone, or is one object already, or if the intent is so old that a sweep
        may have aborted the multipart upload.
        """
        ...

    def intend(self, key: str, cell: int, span: ByteRange, name: str) -> int | None:
        """Announce an object with some bytes of a cell; returns the id of its piece.

        None if the file is gone, or is one object already.
        """
        ...

    def withdraw(self, piece_id: int, name: str) -> None:
        """Take back an announcement that was not committed; a later sweep removes its object."""
        ...

    def commit(self, piece_id: int, key: str, cell: int, stamp: Stamp) -> PieceTotals | None:
        """Record that the object is stored; returns what the cell has in pieces now.

        They are counted afterwards: of two pieces that fill a cell together, one sees both. None
        if it came too late: a sweep may have removed it.
        """
        ...

    def is_joinable(self, key: str, pieces: Sequence[Piece]) -> bool:
        """Whether `join` would succeed now: no other piece overlaps these and came between them."""
        ...

    def join(self, piece_id: int, joined: Sequence[Piece], key: str, stamp: Stamp) -> bool:
        """Record a stored object in place of the pieces whose bytes it has.

        It counts as the newest of them. Their objects are deleted later, as somebody may still be
        reading them. False if it came too late, if one of them is gone, or if another piece
        overlaps them and came between them: the object would hide newer bytes, or be hidden.
        """
        ...

    def pieces(self, key: str, cell: int) -> list[Piece]:
        """Stored pieces of a cell."""
        ...

    def loose(self, key: str) -> list[Piece]:
        """Stored pieces of a file whose bytes are not in any part."""
        ...

    def claim(self, key: str, cell: int, token: str, lease: timedelta) -> Claim | None:
        """Claim a cell; None while another has it, or if the file is gone or one object."""
        ...

    def renew(self, claim: Claim, lease: timedelta) -> bool:
        """Let the lease of a claim begin again; False if somebody else has the cell."""
        ...

    def seal(self, claim: Claim, length: int, stamp: Stamp) -> bool:
        """Record the stored cell, and end the claim; False if the claim was lost meanwhile."""
        ...

    def offer(self, key: str, cells: Collection[int], *, seconds: float) -> set[int]:
        """Those of the cells that nobody has begun to store; each is returned only once, ever.

        If there are any, the file is not idle for so many seconds.
        """
        ...

    def place(self, key: str, parts: Sequence[Part]) -> bool:
        """Record cells that a client has stored, under part numbers that no claim uses.

        They supersede all pieces so far, whatever `through` says. False if the file is gone, or is
        one object already.
        """
        ...

    def release(self, claim: Claim) -> None:
        """End a claim without a result; does nothing if it has ended."""
        ...

    def parts(self, key: str) -> list[Part]:
        """Stored cells of a file, in order."""
        ...

    def part(self, key: str, cell: int) -> Part | None:
        """One stored cell."""
        ...

    def add_whole(self, files: Sequence[tuple[str, str, int]]) -> None:
        """Add files of one object each, as key, name and length, before the objects are put.

        Files that are one object already stay. A caller whose put fails removes the file.
        """
        ...

    def finish(
        self, key: str, name: str, length: int, *, is_published: bool, crc32c: str | None = None
    ) -> bool:
        """Record that one object has the whole file, and its CRC32C; whether that was new.

        Its pieces and parts are dropped, and become garbage.
        """
        ...

    def publish(self, keys: Sequence[str]) -> int:
        """Publish files that are one object each; returns how many of them are published now."""
        ...

    def remove(self, key: str, *, also_published: bool) -> list[Garbage]:
        """Delete a file's rows; returns what to remove from the bucket now. Repeatable."""
        ...

    def remove_unused(self, key: str) -> None:
        """Delete the row of a file of which nothing is stored."""
        ...

    def discard(self, name: str, multipart_id: str | None = None) -> None:
        """Leave an object, or an unfinished multipart upload, to the next sweep to remove."""
        ...

    def garbage(self, limit: int) -> list[Garbage]:
        """What is due for removal, including objects whose lease ended before they were stored."""
        ...

    def collected(self, removed: Collection[Garbage], failed: Collection[Garbage] = ()) -> None:
        """Drop garbage that was removed; the rest is due again an hour later."""
        ...

    def mend(self, key: str, part: Part, stamp: Stamp | None) -> None:
        """Correct the stamp of a part, or drop a lost part, unless it was replaced meanwhile."""
        ...


class Inventory(Protocol):
    """Listings of all files and objects, for the sweep and for reconciling."""

    def staged(self) -> Iterator[tuple[str, float]]:
        """Keys of unpublished files, with their ages in seconds."""
        ...

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        ...

    def shift_activity(self, later: timedelta) -> None:
        """Make unpublished files younger, but not younger than now."""
        ...

    def objects(self) -> Iterator[tuple[str, bool]]:
        """Names of all objects that may be in the bucket, in order, and whether each must be."""
        ...

    def is_needed(self, name: str) -> bool:
        """Whether an object of this name must be in the bucket."""
        ...

    def is_known(self, name: str) -> bool:
        """Whether anything refers to an object, or a multipart upload, of this name."""
        ...
