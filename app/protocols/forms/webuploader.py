"""WebUploader (0.1): fields before the file part, or in the query string of a raw body.

    id                  counted by the page: WU_FILE_0
    name, type, size    of the file; the size in bytes
    lastModifiedDate    of the file, as JavaScript writes a date
    chunk               0-based; with `chunks`, where there are several

The length of a chunk is that of the part; all are alike but the last. Three are sent at once, in
any order. Two files are told apart by all of the above, and by `guid` or `upload_id` where the
page adds one to `formData`.

WebUploader takes 200 to 299 for success, sends a chunk again twice where the line broke or the
status is below 500, and gives up at once where it is 500 or above.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.domain.errors import ChunkMismatch
from app.protocols.forms.chunk import FormDialect, Piece, whole_number

FIELDS = ("id", "name", "size", "chunk", "chunks")
IDENTITY = ("id", "lastModifiedDate", "type", "guid", "upload_id")


def parse_chunk(fields: Mapping[str, str]) -> Piece | None:
    """The chunk the fields tell of; None unless all are there, as beside a whole file.

    Raises `InvalidRequest` for a malformed one, `ChunkMismatch` where they contradict each other.
    """
    if not all(name in fields for name in FIELDS):
        return None
    size, index, count = (whole_number(fields, name) for name in FIELDS[2:])
    if index >= max(1, count):
        raise ChunkMismatch(f"There is no chunk {index} of {count}.")
    return Piece(
        dialect="webuploader",
        identity=tuple(fields.get(name, "") for name in IDENTITY),
        filename=fields["name"],
        index=index,
        count=count,
        total=size,
        is_named=True,
    )


DIALECT = FormDialect(FIELDS, parse_chunk)
