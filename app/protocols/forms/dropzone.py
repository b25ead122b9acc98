"""Dropzone's chunked form, and its raw `binaryBody` form.

Dropzone sends these fields before the file part of every chunk (6.3; sizes in bytes):

    dzuuid              the client's id of the upload
    dzchunkindex        0-based
    dztotalfilesize     of the whole file
    dzchunksize         as configured; the last chunk is shorter
    dztotalchunkcount
    dzchunkbyteoffset   = index x chunk size

With `binaryBody` the body is the bare chunk, and the same fields are in the query string together
with `filename`. A chunk may have a digest: a raw body in the Content-Digest header (RFC 9530), a
form in a field `digest` of the same syntax before the file part.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.core.errors import ChunkMismatch
from app.protocols.forms.chunk import FormDialect, require_fields, whole_number
from app.uploads.client_uploads import Chunk

FIELDS = (
    "dzuuid",
    "dzchunkindex",
    "dztotalfilesize",
    "dzchunksize",
    "dztotalchunkcount",
    "dzchunkbyteoffset",
)


def parse_chunk(fields: Mapping[str, str]) -> Chunk | None:
    """The chunk described by the fields; None if none of them is present.

    Raises `InvalidRequest` for a missing or malformed field, `ChunkMismatch` for fields that
    contradict each other.
    """
    if not any(name in fields for name in FIELDS):
        return None
    require_fields(fields, FIELDS)
    index, total, size, count, offset = (whole_number(fields, name) for name in FIELDS[1:])
    if size == 0 or count != max(1, -(-total // size)):
        raise ChunkMismatch(f"A file of {total} bytes does not have {count} chunks of {size}.")
    if index >= count or offset != index * size:
        raise ChunkMismatch(f"Chunk {index} of {count} does not begin at byte {offset}.")
    return Chunk(fields["dzuuid"], offset, min(size, total - offset), total)


DIALECT = FormDialect(FIELDS, parse_chunk)
