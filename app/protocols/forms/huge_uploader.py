"""huge-uploader (1.2): a form that holds only the chunk, and headers that identify it.

    uploader-file-id        a large random number
    uploader-chunk-number   0-based
    uploader-chunks-total   0 for an empty file

The length and the name of the file are unknown: the part is called `blob`. All chunks but the last
have the same size, so the first one's places the others; they arrive in order. A page may add
`uploader-file-name`, percent-encoded, and `uploader-file-size` (bytes).

huge-uploader takes 200, 201 and 204 for success, retries after 408, 502, 503, 504 and broken
connections, and gives up on anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from app.core.errors import ChunkMismatch
from app.protocols.forms.chunk import FormDialect, UnplacedChunk, whole_number

FIELDS = ("uploader-file-id", "uploader-chunk-number", "uploader-chunks-total")


def parse_chunk(fields: Mapping[str, str]) -> UnplacedChunk | None:
    """The chunk described by the headers; None unless all are present.

    Raises `InvalidRequest` for a malformed value, `ChunkMismatch` for contradictory ones.
    """
    if not all(name in fields for name in FIELDS):
        return None
    index, count = (whole_number(fields, name) for name in FIELDS[1:])
    if index >= max(1, count):
        raise ChunkMismatch(f"There is no chunk {index} of {count}.")
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


DIALECT = FormDialect(FIELDS, parse_chunk)
