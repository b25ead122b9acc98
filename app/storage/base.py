"""What the rest of the program asks of a store. Keys are upload ids, whose form was checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from io import RawIOBase
from typing import Protocol

from app.domain.ranges import ByteRange
from app.ingest.copy import BodyLimits
from app.ingest.source import BodySource


class Durability(StrEnum):
    """When bytes are forced to the disk."""

    CHUNK = "chunk"
    """Before a chunk is acknowledged."""
    FILE = "file"
    """Before a finished file is."""
    NONE = "none"
    """Whenever the kernel writes them."""


class BytesLost(Exception):
    """The store no longer has a file it had taken bytes for (a cleaned /tmp, a lost disk)."""


Checkpoint = Callable[[ByteRange], None]
"""Called with a range whose bytes are as durable as the settings ask."""


class RangeWriter(Protocol):
    """The right to write one range of one file, for as long as its context lasts."""

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """Take bytes of `source` until `span` is full or the source ends; where they end.

        They are durable when this returns. Now and then, and before it raises for whatever
        reason, it tells `checkpoint` which bytes are durable by then. Raises `WriterSuperseded`
        as soon as a newer writer asks for the range, `NoRoom`, `StorageFailed`, and whatever the
        source raises.
        """
        ...

    def skip(self, count: int, source: BodySource) -> None:
        """Read `count` bytes of `source` and drop them."""
        ...

    def finish(self, source: BodySource) -> None:
        """Finish `source`; raises `WriterSuperseded` too, should it have to wait for its client."""
        ...


class Staging(Protocol):
    """Files that are still being received."""

    def reserve(self, key: str, length: int) -> None:
        """Make room for a file of `length` bytes, or raise `NoRoom`. Repeatable."""
        ...

    def enlarge(self, key: str, length: int) -> None:
        """Make more room for a file that is there; raises `NoRoom`, `BytesLost`. Repeatable."""
        ...

    def writer(
        self, key: str, span: ByteRange, limits: BodyLimits
    ) -> AbstractContextManager[RangeWriter]:
        """Become the one writer of `span`; an older one is told to stop and waited for.

        Raises `BytesLost` where no room is reserved, `ServerBusy` if the older one does not stop.
        """
        ...

    def wait_for_writer(self, key: str, position: int) -> None:
        """Return once nobody writes the byte at `position`.

        A writer that is about to end is given a moment, any other is told to stop. Raises as
        `writer` does.
        """
        ...

    def receive(self, key: str, source: BodySource, limit: int, limits: BodyLimits) -> int:
        """Take all of `source`, but no more than `limit` bytes, as a new file; its length.

        For a key that nobody else knows yet. The file is durable after `sync`, and not before.
        Raises what `RangeWriter.write` raises.
        """
        ...

    def sync(self, keys: Sequence[str]) -> None:
        """Make files durable, waiting for the disk about once; raises `BytesLost`."""
        ...

    def open(self, key: str) -> RawIOBase:
        """A file from its start, unbuffered; raises `BytesLost`."""
        ...

    def remove(self, key: str) -> None:
        """Remove what is there of the file. Repeatable."""
        ...


class Library(Protocol):
    """Files that are complete: how they get there, are read, and go."""

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """Fill the room under `key` with files, published or not, given with lengths in bytes.

        They stay as they are, and their bytes do not pass through the program. Repeatable; does
        nothing where the file is published already. Raises `BytesLost` where one of them, or the
        room, is not there.
        """
        ...

    def publish(self, key: str, length: int) -> None:
        """Make the file readable, whole or not at all, once no writer is left. Repeatable.

        Room beyond `length` is given back. A published file is never replaced. Raises `BytesLost`
        where there is neither an unpublished file of at least `length` bytes nor a published one.
        """
        ...

    def publish_all(self, files: Sequence[tuple[str, int]]) -> None:
        """Publish several synced files, given with their lengths, as `publish` does each.

        Where it raises, some of them may be published.
        """
        ...

    def open(self, key: str, span: ByteRange) -> RawIOBase:
        """A published file, unbuffered, standing at `span.start`; `FileNotFoundError` if none."""
        ...

    def delete(self, key: str) -> None:
        """Remove whatever there is under the key, published or not. Repeatable."""
        ...


@dataclass(frozen=True, slots=True)
class StagedFile:
    """An unpublished file; `idle_seconds` since it was last written."""

    key: str
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a folder. A fatal one means that no upload can be taken."""

    code: str
    detail: str
    is_fatal: bool


class Inspection(Protocol):
    """What housekeeping, the commands and health checks ask of a store."""

    def staged(self) -> Iterator[StagedFile]:
        """Unpublished files."""
        ...

    def published(self) -> Iterator[str]:
        """Keys of published files."""
        ...

    def shift_activity(self, later: timedelta) -> None:
        """Move the time at which each unpublished file was written, but not beyond now."""
        ...

    def problems(self) -> list[Problem]:
        """What is wrong with the store now; empty when all is well."""
        ...


class Store(Protocol):
    """Where the bytes of uploads are kept."""

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
        """What is there, and what is wrong with it."""
        ...
