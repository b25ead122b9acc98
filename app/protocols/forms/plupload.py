"""Plupload (2.3): fields before the file part, or in the query string of a raw body.

    name            of the file, or one that Plupload made up (`unique_names`)
    chunk           0-based
    chunks          of the file

or, with `send_chunk_number: false`, name, `offset` and `total` (bytes). The part itself is called
`blob`. The lengths of file and chunk are unknown: all chunks but the last have the same size, so
the first one's places the others. Plupload sends them in order.

A page may add `upload_id` to `multipart_params`. Plupload takes any status from 200 to 399 for
success, and retries a chunk as often as `max_retries` says, by default never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.core.errors import ChunkMismatch
from app.protocols.forms.chunk import FormDialect, UnplacedChunk, whole_number

COUNTED = ("name", "chunk", "chunks")
PLACED = ("name", "offset", "total")


def parse_chunk(fields: Mapping[str, str]) -> UnplacedChunk | None:
    """The chunk described by the fields; None unless all of one of the two kinds are present.

    Raises `InvalidRequest` for a malformed value, `ChunkMismatch` for contradictory ones.
    """
    if all(name in fields for name in COUNTED):
        index, count = (whole_number(fields, name) for name in COUNTED[1:])
        if index >= max(1, count):
            raise ChunkMismatch(f"There is no chunk {index} of {count}.")
        return replace(_unplaced(fields), index=index, count=count)
    if all(name in fields for name in PLACED):
        start, total = (whole_number(fields, name) for name in PLACED[1:])
        return replace(_unplaced(fields), start=start, total=total)
    return None


def _unplaced(fields: Mapping[str, str]) -> UnplacedChunk:
    identity = (fields.get("upload_id", ""),)
    return UnplacedChunk(dialect="plupload", identity=identity, filename=fields["name"])


DIALECT = FormDialect(("name",), parse_chunk)
