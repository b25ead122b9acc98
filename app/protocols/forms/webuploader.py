"""WebUploader (0.1): fields before the file part, or in the query string of a raw body.

    id                  numbered by the page: WU_FILE_0
    name, type, size    of the file; the size in bytes
    lastModifiedDate    of the file, as JavaScript writes a date
    chunk               0-based; with `chunks`, where there are several

A chunk is as long as its part; all but the last have the same size. Three are sent at a time, in
any order. All of the above identify a file, with `guid` or `upload_id` where the page adds one to
`formData`.

WebUploader takes 200 to 299 for success, retries a chunk twice after a broken connection or a
status below 500, and gives up at once on 500 and above.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.core.errors import ChunkMismatch
from app.protocols.forms.chunk import FormDialect, UnplacedChunk, whole_number

FIELDS = ("id", "name", "size", "chunk", "chunks")
IDENTITY = ("id", "lastModifiedDate", "type", "guid", "upload_id")


def parse_chunk(fields: Mapping[str, str]) -> UnplacedChunk | None:
    """The chunk described by the fields; None unless all are present: the file is whole.

    Raises `InvalidRequest` for a malformed value, `ChunkMismatch` for contradictory ones.
    """
    if not all(name in fields for name in FIELDS):
        return None
    size, index, count = (whole_number(fields, name) for name in FIELDS[2:])
    if index >= max(1, count):
        raise ChunkMismatch(f"There is no chunk {index} of {count}.")
    return UnplacedChunk(
        dialect="webuploader",
        identity=tuple(fields.get(name, "") for name in IDENTITY),
        filename=fields["name"],
        index=index,
        count=count,
        total=size,
        is_named=True,
    )


DIALECT = FormDialect(FIELDS, parse_chunk)
