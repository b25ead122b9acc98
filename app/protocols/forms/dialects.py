"""What client libraries say about a chunk in the fields of a form. No I/O.

Every library sends one file part, and fields that say where its bytes belong; only names and
arithmetic differ. Some send everything before the bytes (`Chunk`). Others leave out the length of
the chunk or of the file, or do not identify the upload (`UnplacedChunk`). Each has a section with
its fields and the statuses it retries; the table at the end says how it is recognized.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from app.core.errors import ChunkMismatch, InvalidRequest
from app.core.numbers import parse_bounded
from app.core.ranges import ByteRange
from app.uploads.client_uploads import Chunk
from app.uploads.service import derived_key

Fields = Mapping[str, str]
"""Fields of a form or of a query string, and the headers in `HEADERS`."""

HEADERS = (
    "content-range",
    "content-disposition",
    "uploader-file-id",
    "uploader-chunk-number",
    "uploader-chunks-total",
    "uploader-file-name",
    "uploader-file-size",
)
"""Headers that count as fields, with names in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedChunk:
    """A chunk whose place is known only once its bytes have arrived.

    The upload's key is derived from `dialect`, `identity`, the file's name and its length (or the
    number of chunks, where the length is unknown). `index` counts from 0. `start` is the offset the
    client states, `length` and `total` are those of the chunk and the file, all in bytes; None
    where the client does not say.

    Where `is_named`, the identity belongs to this file alone. Otherwise two people may send files
    of the same name at the same time: see `chunk_form.py`.
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
        """Whether the chunk is the first of the file."""
        return self.start == 0 if self.start is not None else self.index == 0

    @property
    def needs_chunk_size(self) -> bool:
        """Whether the chunk's place depends on the size of the chunks before it."""
        return self.start is None and self.total is None

    @property
    def may_be_part(self) -> bool:
        """Whether the file may have more chunks; without a length, known once this has arrived."""
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
        """Whether the chunk is the last of the file."""
        if self.start is not None:
            return self.start + length == self.total
        return self.index + 1 == self.count

    def span(self, length: int, chunk_bytes: int | None) -> ByteRange:
        """The chunk's range, given its `length` and the size of earlier chunks, both in bytes.

        Raises `ChunkMismatch` if the numbers contradict each other; a place is never guessed.
        """
        if length != (self.length or length):
            raise ChunkMismatch(f"The chunk has {length} bytes, not the stated {self.length}.")
        if self.start is not None:
            span = ByteRange(self.start, self.start + length)
        elif self.is_last(length):
            span = self._last_span(length, chunk_bytes)
        else:
            is_odd = chunk_bytes is not None and length != chunk_bytes
            if self.total is not None:
                is_odd = length == 0 or -(-self.total // length) != self.count
            if is_odd or length == 0:
                raise ChunkMismatch(
                    f"Chunk {self.index} of {self.count} cannot have {length} bytes where the "
                    f"others have {chunk_bytes or 'another size'}."
                )
            span = ByteRange(self.index * length, (self.index + 1) * length)
        if self.total is not None and span.end > self.total:
            raise ChunkMismatch(f"The chunk ends at byte {span.end} of {self.total}.")
        return span

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
    """How chunks of one client library are recognized and parsed.

    A form with all of `fields` holds a chunk of this library. `signs` are names that no page uses
    by itself: a form with any of them holds a chunk, and a missing field is an error.
    """

    fields: tuple[str, ...]
    place: Callable[[Fields], Chunk | UnplacedChunk]
    """Where the chunk belongs, given all of `fields`; raises like `parse`."""
    signs: tuple[str, ...] = ()

    def has_all(self, fields: Fields) -> bool:
        """Whether every field that a chunk needs has arrived."""
        return all(name in fields for name in self.fields)

    def parse(self, fields: Fields) -> Chunk | UnplacedChunk | None:
        """The chunk that the fields describe; None if they are not this library's.

        Raises `InvalidRequest` for a missing or malformed field, `ChunkMismatch` for fields that
        contradict each other.
        """
        if not self.has_all(fields):
            if not any(name in fields for name in self.signs):
                return None
            require_fields(fields, self.fields)
        return self.place(fields)


def require_fields(fields: Fields, names: Sequence[str]) -> None:
    """Raise an `InvalidRequest` that lists the missing `names`, if any."""
    if missing := [name for name in names if name not in fields]:
        raise InvalidRequest(f"These fields are missing: {', '.join(missing)}.")


def whole_number(fields: Fields, name: str) -> int:
    """The value of a field; raises `InvalidRequest` unless it is plain decimal digits."""
    number = parse_bounded(fields[name])
    if number is None:
        raise InvalidRequest(f"The field {name} is not a whole number of bytes or chunks.")
    return number


def _index_and_count(fields: Fields, index_name: str, count_name: str) -> tuple[int, int]:
    """The number of a chunk, from 0, and how many there are; an empty file may have none."""
    index, count = whole_number(fields, index_name), whole_number(fields, count_name)
    if index >= max(1, count):
        raise ChunkMismatch(f"There is no chunk {index} of {count}.")
    return index, count


# ---- Dropzone ------------------------------------------------------------------------------------

# Dropzone's chunked form, and its raw `binaryBody` form.
#
# Dropzone sends these fields before the file part of every chunk (6.3; sizes in bytes):
#
#     dzuuid              the client's id of the upload
#     dzchunkindex        0-based
#     dztotalfilesize     of the whole file
#     dzchunksize         as configured; the last chunk is shorter
#     dztotalchunkcount
#     dzchunkbyteoffset   = index x chunk size
#
# With `binaryBody` the body is the bare chunk, and the same fields are in the query string together
# with `filename`. A chunk may have a digest: a raw body in the Content-Digest header (RFC 9530), a
# form in a field `digest` of the same syntax before the file part.


DROPZONE_FIELDS = (
    "dzuuid",
    "dzchunkindex",
    "dztotalfilesize",
    "dzchunksize",
    "dztotalchunkcount",
    "dzchunkbyteoffset",
)


def _dropzone(fields: Fields) -> Chunk:
    index, total, size, count, offset = (whole_number(fields, name) for name in DROPZONE_FIELDS[1:])
    if size == 0 or count != max(1, -(-total // size)):
        raise ChunkMismatch(f"A file of {total} bytes does not have {count} chunks of {size}.")
    if index >= count or offset != index * size:
        raise ChunkMismatch(f"Chunk {index} of {count} does not begin at byte {offset}.")
    return Chunk(fields["dzuuid"], offset, min(size, total - offset), total)


# ---- Resumable.js, Flow.js, simple-uploader.js ---------------------------------------------------

# Chunks with 1-based numbers, as sent by Resumable.js, Flow.js and simple-uploader.js.
#
# All use these fields, the first two with a prefix (sizes in bytes):
#
#     ChunkNumber         from 1
#     ChunkSize           as configured
#     CurrentChunkSize    of this chunk; the last one may be almost twice as large
#     TotalSize           of the whole file
#     Identifier          by default derived from length and name
#     Filename, RelativePath
#
# and TotalChunks, which is useless: while a file is still being cut it counts the chunks so far.
# Before each chunk they send a GET with the same fields (a probe) to ask whether it is stored.


NUMBERED_FIELDS = ("Identifier", "ChunkNumber", "ChunkSize", "CurrentChunkSize", "TotalSize")


def _numbered(prefix: str) -> FormDialect:
    """The dialect whose fields begin with `prefix`; if it is empty, with a lower-case letter."""

    def named(field: str) -> str:
        return prefix + field if prefix else field[0].lower() + field[1:]

    def place(fields: Fields) -> Chunk:
        identifier = fields[names[0]]
        number, size, length, total = (whole_number(fields, name) for name in names[1:])
        if number == 0 or size == 0:
            raise ChunkMismatch("Chunks are numbered from 1, and ChunkSize is not 0.")
        offset = (number - 1) * size
        is_last = offset + length == total
        if offset + length > total or not (is_last or length == size):
            raise ChunkMismatch(f"Chunk {number} of {length} bytes does not fit {total} bytes.")
        if length >= 2 * size or (length == 0 and total > 0):
            raise ChunkMismatch(
                f"Chunk {number} cannot have {length} bytes where others have {size}."
            )
        filename = fields.get(named("RelativePath")) or fields.get(named("Filename"), "")
        key = derived_key(prefix or "simple", identifier, total, filename)
        return Chunk(key, offset, length, total, filename, identifier, restarts=True)

    names = tuple(map(named, NUMBERED_FIELDS))
    # Without a prefix, the names may be the page's own.
    return FormDialect(names, place, signs=names if prefix else ())


# ---- Fine Uploader -------------------------------------------------------------------------------

# Fine Uploader (5.16): fields in a form before the file part, or in the query string of a raw body
# (`forceMultipart` and `paramsInBody` false); sizes in bytes.
#
#     qquuid              the client's id of the upload
#     qqfilename
#     qqtotalfilesize     of the whole file
#     qqpartindex         0-based
#     qqpartbyteoffset
#     qqchunksize         of this chunk
#     qqtotalparts
#
# Without the last four the file is whole, but still identified by qquuid.


FILE_FIELDS = ("qquuid", "qqtotalfilesize")
PART_FIELDS = ("qqpartindex", "qqpartbyteoffset", "qqchunksize", "qqtotalparts")


def _fineuploader(fields: Fields) -> Chunk:
    """The chunk or whole file in Fine Uploader's fields."""
    key, filename = fields["qquuid"], fields.get("qqfilename", "")
    total = whole_number(fields, "qqtotalfilesize")
    if not any(name in fields for name in PART_FIELDS):
        return Chunk(key, 0, total, total, filename)
    require_fields(fields, PART_FIELDS)
    index, offset, length, count = (whole_number(fields, name) for name in PART_FIELDS)
    end = offset + length
    if index >= count or end > total or (index == count - 1) != (end == total):
        raise ChunkMismatch(f"Chunk {index} of {count} cannot end at byte {end}.")
    return Chunk(key, offset, length, total, filename)


# ---- Content-Range -------------------------------------------------------------------------------

# blueimp jQuery File Upload (10.32) and Uploady (`@rpldy/chunked-sender` 1.13): `Content-Range`.
#
# Both send `Content-Range: bytes 0-1048575/5000000` with every chunk, as the one file of a form or
# as a bare body (`multipart: false`, `sendWithFormData: false`). The part has the file's name;
# blueimp repeats it in `Content-Disposition`, percent-encoded. Nothing else identifies the upload,
# unless the page adds a field `upload_id`.
#
# Both take any status from 200 to 204 for success. blueimp does not retry chunks by itself; Uploady
# retries as often as its option `retries` says, by default never.


_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")

_FILENAME = re.compile(r'attachment; filename="([^"]*)"')


def _content_range(fields: Fields) -> UnplacedChunk:
    """The chunk in Content-Range, which must say the length of the file."""
    match = _RANGE.fullmatch(fields["content-range"])
    if match is None:
        raise InvalidRequest("Content-Range must have the form `bytes 0-1023/4096`.")
    start, last, total = (int(number) for number in match.groups())
    if not start <= last < total:
        raise ChunkMismatch(f"A file of {total} bytes has no bytes {start} to {last}.")
    named = _FILENAME.fullmatch(fields.get("content-disposition", ""))
    upload_id = fields.get("upload_id", "")
    return UnplacedChunk(
        dialect="range",
        identity=(upload_id,),
        filename=unquote(named[1]) if named else "",
        start=start,
        length=last + 1 - start,
        total=total,
        is_named=bool(upload_id),
    )


# ---- huge-uploader -------------------------------------------------------------------------------

# huge-uploader (1.2): a form that holds only the chunk, and headers that identify it.
#
#     uploader-file-id        a large random number
#     uploader-chunk-number   0-based
#     uploader-chunks-total   0 for an empty file
#
# The length and the name of the file are unknown: the part is called `blob`. All chunks but the
# last have the same size, so the first one's places the others; they arrive in order. A page may
# add `uploader-file-name`, percent-encoded, and `uploader-file-size` (bytes).
#
# huge-uploader takes 200, 201 and 204 for success, retries after 408, 502, 503, 504 and broken
# connections, and gives up on anything else.


HUGE_FIELDS = ("uploader-file-id", "uploader-chunk-number", "uploader-chunks-total")


def _huge_uploader(fields: Fields) -> UnplacedChunk:
    index, count = _index_and_count(fields, *HUGE_FIELDS[1:])
    size = whole_number(fields, "uploader-file-size") if "uploader-file-size" in fields else None
    return UnplacedChunk(
        dialect="huge",
        identity=(fields["uploader-file-id"], str(count)),
        filename=unquote(fields.get("uploader-file-name", "")),
        index=index,
        count=count,
        total=size,
        is_named=True,
    )


# ---- WebUploader ---------------------------------------------------------------------------------

# WebUploader (0.1): fields before the file part, or in the query string of a raw body.
#
#     id                  numbered by the page: WU_FILE_0
#     name, type, size    of the file; the size in bytes
#     lastModifiedDate    of the file, as JavaScript writes a date
#     chunk               0-based; with `chunks`, where there are several
#
# A chunk is as long as its part; all but the last have the same size. Three are sent at a time, in
# any order. All of the above identify a file, with `guid` or `upload_id` where the page adds one to
# `formData`.
#
# WebUploader takes 200 to 299 for success, retries a chunk twice after a broken connection or a
# status below 500, and gives up at once on 500 and above.


WEBUPLOADER_FIELDS = ("id", "name", "size", "chunk", "chunks")
WEBUPLOADER_IDENTITY = ("id", "lastModifiedDate", "type", "guid", "upload_id")


def _webuploader(fields: Fields) -> UnplacedChunk:
    size = whole_number(fields, "size")
    index, count = _index_and_count(fields, "chunk", "chunks")
    return UnplacedChunk(
        dialect="webuploader",
        identity=tuple(fields.get(name, "") for name in WEBUPLOADER_IDENTITY),
        filename=fields["name"],
        index=index,
        count=count,
        total=size,
        is_named=True,
    )


# ---- Plupload ------------------------------------------------------------------------------------

# Plupload (2.3): fields before the file part, or in the query string of a raw body.
#
#     name            of the file, or one that Plupload made up (`unique_names`)
#     chunk           0-based
#     chunks          of the file
#
# or, with `send_chunk_number: false`, name, `offset` and `total` (bytes). The part itself is called
# `blob`. The lengths of file and chunk are unknown: all chunks but the last have the same size, so
# the first one's places the others. Plupload sends them in order.
#
# A page may add `upload_id` to `multipart_params`. Plupload takes any status from 200 to 399 for
# success, and retries a chunk as often as `max_retries` says, by default never.


PLUPLOAD_COUNTED = ("name", "chunk", "chunks")
PLUPLOAD_PLACED = ("name", "offset", "total")


def _plupload_counted(fields: Fields) -> UnplacedChunk:
    index, count = _index_and_count(fields, *PLUPLOAD_COUNTED[1:])
    identity = (fields.get("upload_id", ""),)
    return UnplacedChunk(
        dialect="plupload", identity=identity, filename=fields["name"], index=index, count=count
    )


def _plupload_placed(fields: Fields) -> UnplacedChunk:
    start, total = (whole_number(fields, name) for name in PLUPLOAD_PLACED[1:])
    identity = (fields.get("upload_id", ""),)
    return UnplacedChunk(
        dialect="plupload", identity=identity, filename=fields["name"], start=start, total=total
    )


# ---- the table -----------------------------------------------------------------------------------

# The fields of a chunk, the function that places it, and the signs of its library.


DROPZONE = FormDialect(DROPZONE_FIELDS, _dropzone, signs=DROPZONE_FIELDS)
SIMPLE_UPLOADER = _numbered("")
CONTENT_RANGE = FormDialect(("content-range",), _content_range)
HUGE_UPLOADER = FormDialect(HUGE_FIELDS, _huge_uploader)
WEBUPLOADER = FormDialect(WEBUPLOADER_FIELDS, _webuploader)
PLUPLOAD = FormDialect(PLUPLOAD_COUNTED, _plupload_counted)
PLUPLOAD_BY_OFFSET = FormDialect(PLUPLOAD_PLACED, _plupload_placed)

AT_UPLOAD = (
    DROPZONE,
    SIMPLE_UPLOADER,
    CONTENT_RANGE,
    HUGE_UPLOADER,
    WEBUPLOADER,
    PLUPLOAD,
    PLUPLOAD_BY_OFFSET,
)
"""Dialects at the shared URL. The first one that recognizes a form's fields parses it: Dropzone
first, the most frequent, and WebUploader before Plupload, whose fields are a subset."""

RESUMABLEJS = _numbered("resumable")
FLOW = _numbered("flow")
FINEUPLOADER = FormDialect(FILE_FIELDS, _fineuploader, signs=PART_FIELDS)
