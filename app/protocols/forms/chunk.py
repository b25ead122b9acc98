"""What a client says about a chunk, and where that puts it. Values only: nothing here does I/O.

Every dialect sends one file part, and fields that say where its bytes belong; only names and
arithmetic differ. Some dialects say everything before the bytes (`Chunk`). Others leave out the
length of the chunk or of the file, or do not identify the upload (`UnplacedChunk`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.core.errors import ChunkMismatch, InvalidRequest
from app.core.numbers import parse_bounded
from app.core.ranges import ByteRange
from app.uploads.client_uploads import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedChunk:
    """A chunk whose place is known only once its bytes have arrived.

    The upload's key is derived from `dialect`, `identity`, the file's name and its length (or the
    number of chunks, where the length is unknown). `index` counts from 0. `start` is the offset the
    client states, `length` and `total` are those of the chunk and the file, all in bytes; None
    where the client does not say.

    Where `is_named`, the identity belongs to this file alone. Otherwise two people may send files
    of the same name at the same time: see `staged_chunks.py`.
    """

    dialect: str
    identity: tuple[str, ...] = ()
    filename: str = ""
    index: int = 0
    count: int = 0
    start: int | None = None
    length: int | None = None
    total: int | None = None
    is_named: bool = False

    @property
    def is_first(self) -> bool:
        """Whether it is the beginning of the file."""
        return self.start == 0 if self.start is not None else self.index == 0

    @property
    def needs_chunk_size(self) -> bool:
        """Whether its place depends on the size of the chunks before it."""
        return self.start is None and self.total is None

    @property
    def may_be_part(self) -> bool:
        """Whether there may be more of the file: without a length, that shows once it has come."""
        return not self.is_whole(self.length or 0)

    def is_whole(self, length: int) -> bool:
        """Whether a chunk of `length` bytes is the whole file."""
        if self.start is not None:
            return self.start == 0 and length == self.total
        return self.count <= 1

    def check_whole(self, length: int) -> None:
        """Raise `ChunkMismatch` unless the fields agree that the file has `length` bytes."""
        for stated in (self.length, self.total):
            if stated not in {None, length}:
                raise ChunkMismatch(f"The file has {length} bytes, not the stated {stated}.")

    def is_last(self, length: int) -> bool:
        """Whether it is the end of the file."""
        if self.start is not None:
            return self.start + length == self.total
        return self.index + 1 == self.count

    def span(self, length: int, chunk_bytes: int | None) -> ByteRange:
        """The place of its `length` bytes in a file whose earlier chunks have `chunk_bytes` each.

        Raises `ChunkMismatch` where the numbers contradict each other; a place is never guessed.
        """
        if length != (self.length or length):
            raise ChunkMismatch(f"The chunk has {length} bytes, not the stated {self.length}.")
        if self.start is not None:
            span = ByteRange(self.start, self.start + length)
        elif self.is_last(length):
            span = self._last_span(length, chunk_bytes)
        else:
            span = self._inner_span(length, chunk_bytes)
        if self.total is not None and span.end > self.total:
            raise ChunkMismatch(f"The chunk ends at byte {span.end} of {self.total}.")
        return span

    def _inner_span(self, length: int, chunk_bytes: int | None) -> ByteRange:
        is_odd = chunk_bytes is not None and length != chunk_bytes
        if self.total is not None:
            is_odd = length == 0 or -(-self.total // length) != self.count
        if is_odd or length == 0:
            raise ChunkMismatch(
                f"Chunk {self.index} of {self.count} cannot have {length} bytes where the "
                f"others have {chunk_bytes or 'another size'}."
            )
        return ByteRange(self.index * length, (self.index + 1) * length)

    def _last_span(self, length: int, chunk_bytes: int | None) -> ByteRange:
        if self.total is None:
            size = chunk_bytes or 0
        else:
            size, rest = divmod(self.total - length, max(1, self.count - 1))
            size = 0 if rest else size
        if self.count > 1 and not 0 < length <= size:
            raise ChunkMismatch(
                f"The last of {self.count} chunks cannot have {length} bytes after chunks of "
                f"{size or 'unknown size'}."
            )
        start = size * (self.count - 1)
        return ByteRange(start, start + length)


@dataclass(frozen=True, slots=True)
class FormDialect:
    """How a client library names the fields of a chunk.

    Once all of `fields` have arrived, `parse` can say where a file part belongs. It returns None
    for a form that has none of them: the files in it are whole. Headers that a dialect reads count
    as fields, with names in lower case. Where it `restarts`, the first chunk of a file restarts an
    upload that has ended.
    """

    fields: tuple[str, ...]
    parse: Callable[[Mapping[str, str]], Chunk | UnplacedChunk | None]
    restarts: bool = False


def require_fields(fields: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise an `InvalidRequest` that lists which of `names` are missing, if any."""
    if missing := [name for name in names if name not in fields]:
        raise InvalidRequest(f"These fields are missing: {', '.join(missing)}.")


def whole_number(fields: Mapping[str, str], name: str) -> int:
    """The value of a field; raises `InvalidRequest` unless it is plain decimal digits."""
    number = parse_bounded(fields[name])
    if number is None:
        raise InvalidRequest(f"The field {name} is not a whole number of bytes or chunks.")
    return number
