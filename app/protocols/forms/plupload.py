"""Plupload (2.3): fields before the file part, or in the query string of a raw body.

    name            of the file, or one of Plupload's making (`unique_names`)
    chunk           0-based
    chunks          of the file

or, with `send_chunk_number: false`, `offset` and `total` in bytes beside the name. The part itself
is called `blob`. Nothing tells the length of the file or of a chunk: all are alike but the last,
so the size of the first places the others. Plupload sends them one after the other.

A page may add `upload_id` to `multipart_params`. Plupload takes any status from 200 to 399 for
success, and sends a chunk again as often as `max_retries` says, which is not at all by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.domain.errors import ChunkMismatch
from app.protocols.forms.chunk import FormDialect, Piece, whole_number

COUNTED = ("name", "chunk", "chunks")
PLACED = ("name", "offset", "total")


def parse_chunk(fields: Mapping[str, str]) -> Piece | None:
    """The chunk the fields tell of; None unless all of one of the two kinds are there.

    Raises `InvalidRequest` for a malformed one, `ChunkMismatch` where they contradict each other.
    """
    if all(name in fields for name in COUNTED):
        index, count = (whole_number(fields, name) for name in COUNTED[1:])
        if index >= max(1, count):
            raise ChunkMismatch(f"There is no chunk {index} of {count}.")
        return replace(_piece(fields), index=index, count=count)
    if all(name in fields for name in PLACED):
        start, total = (whole_number(fields, name) for name in PLACED[1:])
        return replace(_piece(fields), start=start, total=total)
    return None


def _piece(fields: Mapping[str, str]) -> Piece:
    identity = (fields.get("upload_id", ""),)
    return Piece(dialect="plupload", identity=identity, filename=fields["name"])


DIALECT = FormDialect(("name",), parse_chunk)
