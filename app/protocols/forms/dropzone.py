"""Dropzone's chunked form, and its raw `binaryBody` form.

Dropzone sends these fields before the file part of every chunk (6.3; sizes in bytes):

    dzuuid              the client's name for the upload
    dzchunkindex        0-based
    dztotalfilesize     of the whole file
    dzchunksize         as configured; the last chunk is shorter
    dztotalchunkcount
    dzchunkbyteoffset   = index x chunk size

With `binaryBody` the body is the bare chunk and the same names stand in the query string, with
`filename` beside them. Either form may give the digest of the chunk: as Content-Digest header
(RFC 9530) of a raw body, as a field `digest` of the same form before the file part.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.domain.errors import ChunkMismatch
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
    """The chunk the fields tell of; None where none of them is there.

    Raises `InvalidRequest` for a missing or malformed one, `ChunkMismatch` where they contradict
    each other.
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
