"""blueimp jQuery File Upload (10.32) and Uploady (`@rpldy/chunked-sender` 1.13): `Content-Range`.

Both send `Content-Range: bytes 0-1048575/5000000` with every chunk, as the one file of a form or as
a bare body (`multipart: false`, `sendWithFormData: false`). The part has the file's name; blueimp
repeats it in `Content-Disposition`, percent-encoded. Nothing else identifies the upload, unless the
page adds a field `upload_id`.

Both take any status from 200 to 204 for success. blueimp does not retry chunks by itself; Uploady
retries as often as its option `retries` says, by default never.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from app.core.errors import ChunkMismatch, InvalidRequest
from app.protocols.forms.chunk import FormDialect, UnplacedChunk

_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")

_FILENAME = re.compile(r'attachment; filename="([^"]*)"')


def parse_range(fields: Mapping[str, str]) -> UnplacedChunk | None:
    """The chunk described by Content-Range; None without that header.

    Raises `InvalidRequest` for a malformed header or an unknown length, `ChunkMismatch` for a
    range beyond the end.
    """
    if "content-range" not in fields:
        return None
    match = _RANGE.fullmatch(fields["content-range"])
    if match is None:
        raise InvalidRequest("Content-Range must have the form `bytes 0-1023/4096`.")
    start, last, total = (int(number) for number in match.groups())
    if not start <= last < total:
        raise ChunkMismatch(f"A file of {total} bytes has no bytes {start} to {last}.")
    upload_id = fields.get("upload_id", "")
    return UnplacedChunk(
        dialect="range",
        identity=(upload_id,),
        filename=_filename(fields.get("content-disposition", "")),
        start=start,
        length=last + 1 - start,
        total=total,
        is_named=bool(upload_id),
    )


def _filename(disposition: str) -> str:
    match = _FILENAME.fullmatch(disposition)
    return unquote(match[1]) if match else ""


DIALECT = FormDialect(("content-range",), parse_range)
