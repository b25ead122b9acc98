"""What the rest of the program asks of a store. Keys are validated upload ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from io import RawIOBase
from typing import Protocol

from app.core.ranges import ByteRange
from app.ingest.copy import BodyLimits
from app.ingest.source import BodySource
from app.settings import Settings


class Durability(StrEnum):
    """When bytes are forced to the disk."""

    CHUNK = "chunk"
    """Before a chunk is acknowledged."""
    FILE = "file"
    """Before a finished file is."""
    NONE = "none"
    """Whenever the kernel writes it."""


def durability_in(settings: Settings) -> Durability:
    """A bucket has what it has confirmed, whatever happens to this machine."""
    return Durability.CHUNK if settings.storage else Durability(settings.durability)


class BytesLost(Exception):
    """The store no longer has a file it had taken bytes for (a cleaned /tmp, a lost disk)."""


Checkpoint = Callable[[ByteRange], None]
"""Called with a range whose bytes are as durable as the settings ask."""


class RangeWriter(Protocol):
    """The exclusive right to write one range of one file, while its context lasts."""

    def write(self, span: ByteRange, source: BodySource, checkpoint: Checkpoint) -> int:
        """Write bytes of `source` until `span` is full or the source ends; returns where they end.

        They are durable when this returns. From time to time, and before it raises anything, it
        calls `checkpoint` with the bytes that are durable by then. Raises `WriterSuperseded` as
        soon as a newer writer asks for the range, `NoRoom`, `StorageFailed`, and whatever the
        source raises.
        """
        ...

    def skip(self, count: int, source: BodySource) -> None:
        """Read `count` bytes of `source` and drop them."""
        ...

    def finish(self, source: BodySource) -> None:
        """Finish `source`; may raise `WriterSuperseded` if it has to wait for its client."""
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
        """Become the only writer of `span`: stops an older one, and waits until it has ended.

        Raises `BytesLost` if no space is reserved, `ServerBusy` if the older one does not stop.
        """
        ...

    def wait_for_writer(self, key: str, position: int) -> None:
        """Return once nobody writes the byte at `position`.

        A writer gets a moment to end by itself before it is stopped. Raises as `writer` does.
        """
        ...

    def receive(self, key: str, source: BodySource, limit: int, limits: BodyLimits) -> int:
        """Write all of `source`, up to `limit` bytes, to a new file; returns its length.

        For a key that nobody else knows yet. The file is durable only after `sync`. Raises what
        `RangeWriter.write` raises.
        """
        ...

    def sync(self, keys: Sequence[str]) -> None:
        """Make files durable in about one wait for the disk; raises `BytesLost`."""
        ...

    def open(self, key: str) -> RawIOBase:
        """A file from its start, unbuffered; missing bytes read as zeros.

        Raises `BytesLost`. Reading raises `StorageFailed` for bytes that are stored, but cannot be
        read before the file is complete.
        """
        ...

    def open_complete(self, key: str, length: int) -> RawIOBase:
        """A file whose `length` bytes have all arrived; as `open`. No more may be written."""
        ...

    def contains(self, key: str, start: int, ours: RawIOBase, length: int) -> bool:
        """Whether the file's bytes from `start` on are the next `length` bytes of `ours`.

        Stored bytes that cannot be read before the file is complete count as equal. Raises
        `BytesLost`.
        """
        ...

    def give_back(self, key: str, is_unused: Callable[[], bool]) -> None:
        """Free the space of a file that nobody writes, if `is_unused()`; it can be reserved anew.

        It is asked while nobody can begin to write. Writers that come later raise `BytesLost`.
        """
        ...

    def remove(self, key: str) -> None:
        """Remove whatever exists of the file. Repeatable."""
        ...


class SignUrl(Protocol):
    """Optional capability of a store that can send files to clients itself."""

    def __call__(self, key: str, seconds: int, /, *, content_type: str, disposition: str) -> str:
        """A URL that sends a published file, with these response headers, for this long.

        May raise `FileNotFoundError`.
        """
        ...


class Library(Protocol):
    """Complete files: publishing, reading and deleting them."""

    def concatenate(self, key: str, parts: Sequence[tuple[str, int]]) -> None:
        """Copy files, published or not, into the space reserved under `key`; lengths are bytes.

        They are left as they are, and their bytes do not pass through the program. Repeatable;
        does nothing if the file is published already. Raises `BytesLost` if one of them, or the
        reserved space, is missing.
        """
        ...

    def publish(self, key: str, length: int) -> str | None:
        """Make the file readable, whole or not at all, once no writer is left. Repeatable.

        Space beyond `length` is freed. A published file is never replaced. Returns its CRC32C in
        base64 if some of its bytes went straight into the store, which has checked them; otherwise
        None. Raises `BytesLost` if there is neither an unpublished file of at least `length` bytes
        nor a published one.
        """
        ...

    def publish_all(self, files: Sequence[tuple[str, int]]) -> None:
        """Publish several synced files, given with their lengths, as `publish` does.

        If it raises, some of them may be published.
        """
        ...

    def open(self, key: str, span: ByteRange) -> RawIOBase:
        """A published file, unbuffered, at `span.start`; may raise `FileNotFoundError`."""
        ...

    def delete(self, key: str) -> None:
        """Remove whatever exists under the key, published or not. Repeatable."""
        ...


@dataclass(frozen=True, slots=True)
class StagedFile:
    """An unpublished file; `idle_seconds` since it was last written."""

    key: str
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class SetupProblem:
    """Something wrong with this machine. A fatal one means that no upload can be taken."""

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
        """Shift the modification time of each unpublished file, but not beyond now."""
        ...

    def problems(self) -> list[SetupProblem]:
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
        """What the store contains, and what is wrong with it."""
        ...
