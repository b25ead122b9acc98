"""What a client says of a chunk, and where that puts it. Values only: nothing here does I/O.

Every dialect sends one file part and beside it fields that say where its bytes belong. Only the
names and the arithmetic differ. Some tell everything before the bytes (`Chunk`); some leave out
the length of a chunk or of the file, or send nothing that names the upload (`Piece`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.errors import ChunkMismatch, InvalidRequest
from app.domain.ranges import ByteRange
from app.uploads.client_uploads import Chunk

_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A chunk that can be placed only once its bytes have arrived.

    `dialect`, `identity`, the length of the file (else the number of chunks) and its name make
    the upload's key. `index` counts from 0. `start` (bytes) is where the client says that the
    chunk begins, `length` and `total` those of the chunk and the file; None where it does not say.

    Where `is_named`, the identity is of this file alone. Otherwise two people may send files of one
    name at the same time: see `staged_chunks.py`.
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
        """Whether the file begins with it."""
        return self.start == 0 if self.start is not None else self.index == 0

    @property
    def needs_chunk_size(self) -> bool:
        """Whether its place follows only from the size of the chunks before it."""
        return self.start is None and self.total is None

    def is_whole(self, length: int) -> bool:
        """Whether a chunk of so many bytes is all of the file."""
        if self.start is not None:
            return self.start == 0 and length == self.total
        return self.count <= 1

    def check_whole(self, length: int) -> None:
        """Raise `ChunkMismatch` where the fields tell of more bytes, or of fewer."""
        for told in (self.length, self.total):
            if told not in {None, length}:
                raise ChunkMismatch(f"The file has {length} bytes, not {told} as it says.")

    def is_last(self, length: int) -> bool:
        """Whether the file ends with it."""
        if self.start is not None:
            return self.start + length == self.total
        return self.index + 1 == self.count

    def span(self, length: int, chunk_bytes: int | None) -> ByteRange:
        """The place of its `length` bytes, in a file whose earlier chunks have `chunk_bytes`.

        Raises `ChunkMismatch` where the numbers contradict each other: no place is guessed.
        """
        if length != (self.length or length):
            raise ChunkMismatch(f"The chunk has {length} bytes, not {self.length} as it says.")
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
                f"Chunk {self.index} of {self.count} cannot have {length} bytes where others "
                f"have {chunk_bytes or 'another size'}."
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
                f"The last of {self.count} chunks cannot have {length} bytes behind chunks of "
                f"{size or 'unknown size'}."
            )
        start = size * (self.count - 1)
        return ByteRange(start, start + length)


@dataclass(frozen=True, slots=True)
class FormDialect:
    """How a client names the fields of a chunk, and which upload it belongs to.

    Once all of `fields` are there, `parse` can tell where a file part belongs. It returns None for
    a form that has none of them, whose files are whole. Headers a dialect reads are fields too, in
    lower case. Where it `restarts`, the first chunk of a file restarts an upload that has ended.
    """

    fields: tuple[str, ...]
    parse: Callable[[Mapping[str, str]], Chunk | Piece | None]
    restarts: bool = False


def require_fields(fields: Mapping[str, str], names: Sequence[str]) -> None:
    """`InvalidRequest` that lists which of `names` are missing, if any."""
    if missing := [name for name in names if name not in fields]:
        raise InvalidRequest(f"These fields are missing: {', '.join(missing)}.")


def whole_number(fields: Mapping[str, str], name: str) -> int:
    """The value of a field; `InvalidRequest` unless it is plain decimal digits."""
    if not _NUMBER.fullmatch(fields[name]):
        raise InvalidRequest(f"The field {name} is not a whole number of bytes or chunks.")
    return int(fields[name])
