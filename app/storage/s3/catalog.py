"""The bucket store's interface to the database: the objects and parts of each file.

`app/records/bucket.py` implements it. Each call is atomic, on any node.
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
    """The rows of files, their pieces, parts and claims, and of garbage to be removed."""

    @property
    def inventory(self) -> Inventory:
        """Lists all rows."""
        ...

    def reserve(self, key: str, grid: Grid, length: int | None) -> None:
        """Add a file; the length of an existing file can only grow."""
        ...

    def file(self, key: str) -> StoredFile | None:
        """Returns a file; None if there is none."""
        ...

    def intend_multipart(self, name: str) -> None:
        """Announce a multipart upload; a sweep aborts it unless `begin_multipart` records it."""
        ...

    def begin_multipart(self, key: str, multipart: Multipart) -> Multipart | None:
        """Record the multipart upload of a file; returns the one that was recorded first.

        Returns None if the file is gone or is one object already, or if the intent is so old that a
        sweep may have aborted the multipart upload.
        """
        ...

    def intend(self, key: str, cell: int, span: ByteRange, name: str) -> int | None:
        """Announce an object with some bytes of a cell; returns the id of its piece.

        Returns None if the file is gone or is one object already.
        """
        ...

    def withdraw(self, piece_id: int, name: str) -> None:
        """Withdraw an announcement that was not committed; a later sweep removes its object."""
        ...

    def commit(self, piece_id: int, key: str, cell: int, stamp: Stamp) -> PieceTotals | None:
        """Record that the object is stored; returns the new totals of the cell's pieces.

        Pieces are counted after the change: of two that fill a cell together, at least one sees
        both. Returns None if the call came too late: a sweep may have removed the object.
        """
        ...

    def is_joinable(self, key: str, pieces: Sequence[Piece]) -> bool:
        """Whether `join` would succeed now: no overlapping piece came between these."""
        ...

    def join(self, piece_id: int, joined: Sequence[Piece], key: str, stamp: Stamp) -> bool:
        """Replace the joined pieces with one stored object that has their bytes.

        It counts as the newest of them. Their objects are deleted later, since they may still be
        read. Returns False if the call came too late, if one of the pieces is gone, or if another
        piece that overlaps them came between them: the object would hide newer bytes, or be hidden.
        """
        ...

    def pieces(self, key: str, cell: int) -> list[Piece]:
        """Stored pieces of a cell."""
        ...

    def loose(self, key: str) -> list[Piece]:
        """Stored pieces of a file whose bytes are not in any part."""
        ...

    def claim(self, key: str, cell: int, token: str, lease: timedelta) -> Claim | None:
        """Claim a cell; None while it is claimed, or if the file is gone or one object."""
        ...

    def renew(self, claim: Claim, lease: timedelta) -> bool:
        """Renew the lease of a claim; False if the claim was taken over."""
        ...

    def seal(self, claim: Claim, length: int, stamp: Stamp) -> bool:
        """Record the stored cell and end the claim; False if the claim was lost."""
        ...

    def offer(self, key: str, cells: Collection[int], *, seconds: float) -> set[int]:
        """Returns the cells that no request has begun to store; returns each cell only once, ever.

        If there are any, the file does not count as idle for `seconds`.
        """
        ...

    def place(self, key: str, parts: Sequence[Part]) -> bool:
        """Record cells that a client has stored, under part numbers that no claim uses.

        They supersede all earlier pieces, regardless of `through`. Returns False if the file is
        gone or is one object already.
        """
        ...

    def release(self, claim: Claim) -> None:
        """End a claim without a part; does nothing if it has ended."""
        ...

    def parts(self, key: str) -> list[Part]:
        """Stored cells of a file, in order."""
        ...

    def part(self, key: str, cell: int) -> Part | None:
        """One stored cell."""
        ...

    def add_whole(self, files: Sequence[tuple[str, str, int]]) -> None:
        """Add files of one object each, as key, name and length, before the objects are put.

        Does not change files that are one object already. If the put fails, the caller must remove
        the file.
        """
        ...

    def finish(
        self, key: str, name: str, length: int, *, is_published: bool, crc32c: str | None = None
    ) -> bool:
        """Record the object that has the whole file, and its CRC32C; returns whether it was new.

        All pieces and parts of the file become garbage.
        """
        ...

    def publish(self, keys: Sequence[str]) -> int:
        """Publish files that are one object each; returns how many of them are now published."""
        ...

    def remove(self, key: str, *, also_published: bool) -> list[Garbage]:
        """Delete a file's rows; returns the garbage to remove from the bucket now. Repeatable."""
        ...

    def remove_unused(self, key: str) -> None:
        """Delete the row of a file that has no stored bytes."""
        ...

    def discard(self, name: str, multipart_id: str | None = None) -> None:
        """Leave an object or an unfinished multipart upload to the next sweep."""
        ...

    def garbage(self, limit: int) -> list[Garbage]:
        """Returns due garbage, including objects whose lease ended before they were stored."""
        ...

    def collected(self, removed: Collection[Garbage], failed: Collection[Garbage] = ()) -> None:
        """Delete the rows of removed garbage; the failed garbage is due again an hour later."""
        ...

    def mend(self, key: str, part: Part, stamp: Stamp | None) -> None:
        """Correct the stamp of a part, or drop a lost part, unless the part has been replaced."""
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
        """Shift the activity times of unpublished files, but not beyond now."""
        ...

    def objects(self) -> Iterator[tuple[str, bool]]:
        """Yields names of objects that may be in the bucket, in order, and whether each must be."""
        ...

    def is_needed(self, name: str) -> bool:
        """Whether an object of this name must be in the bucket."""
        ...

    def is_known(self, name: str) -> bool:
        """Whether any row refers to an object or a multipart upload with this name."""
        ...
