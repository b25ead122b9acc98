"""The store interface that the rest of the program uses. Keys are validated upload ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from io import RawIOBase
from typing import TYPE_CHECKING, Protocol

from app.core.pieces import CellOffer, PromisedCell
from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits
from app.ingest.source import BodySource
from app.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Durability(StrEnum):
    """When bytes are forced to the disk."""

    CHUNK = "chunk"
    """Before a chunk is acknowledged."""
    FILE = "file"
    """Before a finished file is acknowledged."""
    NONE = "none"
    """Whenever the kernel writes them."""


def durability_in(settings: Settings) -> Durability:
    """`CHUNK` for a bucket: it keeps the bytes it confirmed even if this machine fails."""
    return Durability.CHUNK if settings.storage else Durability(settings.durability)


class BytesLost(Exception):
    """The store lost a file that it had accepted bytes for (a cleaned /tmp, a lost disk)."""


Checkpoint = Callable[[ByteRange], None]
"""Called with a range whose bytes have the durability in the settings."""


AddRows = Callable[["Connection"], None]
"""Adds rows of a store to a transaction; raises `BytesLost` if the file has ended."""


class RangeWriter(Protocol):
    """Holds the exclusive right to write one range of one file, for the duration of its context."""

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """Write bytes of `source` until `span` is full or the source ends; returns where they end.

        When this returns, the bytes have the durability in the settings. At intervals, and before
        it raises an error, it calls `checkpoint` with those that have it by then. Raises
        `WriterSuperseded` as soon as a newer writer requests the range, `NoRoom`, `StorageFailed`,
        and any error of the source.
        """
        ...

    def skip(self, count: int, source: BodySource) -> None:
        """Read `count` bytes of `source` and drop them."""
        ...

    def finish(self, source: BodySource) -> None:
        """Finish `source`; may raise `WriterSuperseded` while it waits for the client."""
        ...

    def recording(self) -> AbstractContextManager[AddRows | None]:
        """Yields what adds the store's own rows for the bytes written so far, if it has any.

        It is called in the transaction that records those bytes; leaving the context without an
        error says that it was committed.
        """
        ...


class GiveBack(Protocol):
    """Frees reserved space."""

    def __call__(self, key: str, is_unused: Callable[[], bool], /) -> None:
        """Free the space of a file without writers if `is_unused()`; it can be reserved again.

        `is_unused` is called while no writer can start. Later writers raise `BytesLost`.
        """
        ...


class Staging(Protocol):
    """Files that are still being received."""

    def reserve(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Reserve space for a file of `length` bytes, or raise `NoRoom`. Repeatable.

        Without `allocates`, the space must be free now, but is only taken as bytes are written.
        """
        ...

    def enlarge(self, key: str, length: int, *, allocates: bool = True) -> None:
        """Reserve more space for an existing file, as `reserve` does.

        Raises `NoRoom`, `BytesLost`. Repeatable.
        """
        ...

    def writer(
        self, key: str, span: ByteRange, limits: BodyLimits
    ) -> AbstractContextManager[RangeWriter]:
        """Become the only writer of `span`: stops an older writer and waits until it has ended.

        Raises `BytesLost` if no space is reserved, `ServerBusy` if the older writer does not stop.
        """
        ...

    def stop_writer(self, key: str, position: int) -> None:
        """Return once no writer holds the byte at `position`.

        A writer gets a moment to end by itself before it is stopped. Raises like `writer`.
        """
        ...

    def receive(self, key: str, source: BodySource, limit: int, limits: BodyLimits) -> int:
        """Write all of `source`, up to `limit` bytes, to a new file; returns its length.

        No other request may know the key yet. The file is durable only after `sync`. Raises like
        `RangeWriter.write`.
        """
        ...

    def sync(self, keys: Sequence[str]) -> None:
        """Make several files durable in about the time of one disk sync; raises `BytesLost`."""
        ...

    def open(self, key: str) -> RawIOBase:
        """Open a file at its start, unbuffered; missing bytes read as zeros.

        Raises `BytesLost`.
        """
        ...

    @property
    def give_back(self) -> GiveBack | None:
        """None if the store reserves no space."""
        ...

    def remove(self, key: str) -> None:
        """Remove the file and its reserved space, if they exist. Repeatable."""
        ...


class SignUrl(Protocol):
    """Lets clients get files from the store itself."""

    def __call__(self, key: str, seconds: int, /, *, content_type: str, disposition: str) -> str:
        """Returns a URL of a published file with these response headers, valid for `seconds`.

        May raise `FileNotFoundError`.
        """
        ...


class Library(Protocol):
    """Complete files: publishing, reading and deleting them."""

    @property
    def sign_url(self) -> SignUrl | None:
        """None if the store cannot send files to clients."""
        ...

    @property
    def let_group_read(self) -> Callable[[str], None] | None:
        """Lets programs in this process's group read a file; may raise `FileNotFoundError`.

        For servers that send files themselves. None if the files are not on this machine.
        """
        ...

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """Copy files, published or not, into the space reserved under `key`; lengths in bytes.

        The sources are not changed, and their bytes do not pass through the program. Repeatable;
        does nothing if the file is published already. Raises `BytesLost` if one of the sources or
        the reserved space is missing.
        """
        ...

    def publish(self, key: str, length: int) -> None:
        """Publish the file atomically, once no writer is left. Repeatable.

        Frees space beyond `length`. Never replaces a published file. Raises `BytesLost` if there is
        neither an unpublished file of at least `length` bytes nor a published one.
        """
        ...

    def publish_all(self, files: Sequence[tuple[str, int]]) -> None:
        """Publish several synced files, given with their lengths, like `publish`.

        If it raises, some of them may be published.
        """
        ...

    def being_published(self, keys: Sequence[str]) -> Set[str]:
        """Those of the files for which `publish` would wait: another node publishes them now."""
        ...

    def open(self, key: str, span: ByteRange) -> RawIOBase:
        """Open a published file, unbuffered, at `span.start`; may raise `FileNotFoundError`."""
        ...

    def delete(self, key: str) -> None:
        """Remove the file with this key, published or not. Repeatable."""
        ...


class DirectCells(Protocol):
    """Cells that clients send to the store themselves."""

    @property
    def origin(self) -> str:
        """The origin of the URLs to which they send them."""
        ...

    def offers(self, key: str, promised: Sequence[PromisedCell]) -> list[CellOffer]:
        """Returns signed upload requests, valid for `URL_SECONDS`.

        Raises `ChunkMismatch` for spans that are not cells of the file, and `BytesLost`.
        """
        ...

    def accept(
        self, key: str, promised: Sequence[PromisedCell]
    ) -> list[tuple[ByteRange, int, AddRows]]:
        """Returns each cell's range, CRC32C and rows, if the store has the promised bytes.

        Raises `CellNotStored` unless it has all of them, `ChunkMismatch` and `BytesLost`.
        """
        ...


@dataclass(frozen=True, slots=True)
class StagedFile:
    """An unpublished file; `idle_seconds` since it was last written."""

    key: str
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class SetupProblem:
    """A problem with this machine's setup."""

    code: str
    detail: str
    is_fatal: bool
    """Whether no upload can be accepted."""


class CollectGarbage(Protocol):
    """Deletes garbage. Of several nodes, one needs to call it; it does no harm if more do."""

    def __call__(self, go_on: Callable[[], object] = ..., /) -> None:
        """Calls `go_on` at least every thousand objects; what that raises ends the call."""
        ...


class Inspection(Protocol):
    """The store interface for housekeeping, commands and health checks."""

    @property
    def collect_garbage(self) -> CollectGarbage | None:
        """Deletes objects that are needed no longer, and what crashes left; None for a folder."""
        ...

    @property
    def remove_leftovers(self) -> Callable[[], None] | None:
        """Removes what this node left in its own folders; None if it leaves nothing."""
        ...

    def staged(self) -> Iterator[StagedFile]:
        """Unpublished files."""
        ...

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        ...

    def shift_activity(self, later: timedelta) -> None:
        """Shift the modification time of each unpublished file, but not beyond now."""
        ...

    def problems(self) -> list[SetupProblem]:
        """Returns the store's current problems; empty if there are none."""
        ...


class Store(Protocol):
    """Stores the bytes of uploads."""

    @property
    def staging(self) -> Staging:
        """Files that are still being received."""
        ...

    @property
    def library(self) -> Library:
        """Files that are complete."""
        ...

    @property
    def inspection(self) -> Inspection:
        """Lists the store's files and problems."""
        ...

    @property
    def direct(self) -> DirectCells | None:
        """Lets clients send bytes to the store themselves; None if it is no bucket."""
        ...


# ---- shared code ---------------------------------------------------------------------------------


COMPARED_BYTES = 256 * 1024
"""Block size of the comparison."""


def has_same_bytes(one: RawIOBase, other: RawIOBase, length: int) -> bool:
    """Whether the next `length` bytes of both files exist and are equal."""
    while length:
        block = one.read(min(length, COMPARED_BYTES)) or b""
        found = b""  # A read may return fewer bytes than there are.
        while len(found) < len(block) and (more := other.read(len(block) - len(found))):
            found += more
        if not block or found != block:
            return False
        length -= len(block)
    return True
