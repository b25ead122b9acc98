"""huge-uploader (1.2): a form with nothing but the chunk, and headers that say which it is.

    uploader-file-id        a large random number
    uploader-chunk-number   0-based
    uploader-chunks-total   0 for an empty file

Nothing tells the length or the name of the file: the part is called `blob`. All chunks are alike
but the last, so the size of the first places the others; they come one after the other. A page may
add `uploader-file-name`, with escapes as in a URL, and `uploader-file-size` (bytes).

huge-uploader takes 200, 201 and 204 for success, sends a chunk again after 408, 502, 503, 504 and
broken lines, and gives up on anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from app.domain.errors import ChunkMismatch
from app.protocols.forms.chunk import FormDialect, Piece, whole_number

FIELDS = ("uploader-file-id", "uploader-chunk-number", "uploader-chunks-total")


def parse_chunk(fields: Mapping[str, str]) -> Piece | None:
    """The chunk the headers tell of; None unless all are there.

    Raises `InvalidRequest` for a malformed one, `ChunkMismatch` where they contradict each other.
    """
    if not all(name in fields for name in FIELDS):
        return None
    index, count = (whole_number(fields, name) for name in FIELDS[1:])
    if index >= max(1, count):
        raise ChunkMismatch(f"There is no chunk {index} of {count}.")
    size = whole_number(fields, "uploader-file-size") if "uploader-file-size" in fields else None
    return Piece(
        dialect="huge",
        identity=(fields["uploader-file-id"], str(count)),
        filename=unquote(fields.get("uploader-file-name", "")),
        index=index,
        count=count,
        total=size,
        is_named=True,
    )


DIALECT = FormDialect(FIELDS, parse_chunk)
