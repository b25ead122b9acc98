"""blueimp jQuery File Upload (10.32) and Uploady (`@rpldy/chunked-sender` 1.13): `Content-Range`.

Both send `Content-Range: bytes 0-1048575/5000000` with every chunk, as the one file of a form or as
a bare body (`multipart: false`, `sendWithFormData: false`). The file's name is that of the part,
and blueimp says it in `Content-Disposition` too, with escapes as in a URL. Nothing else names the
upload, unless the page adds a field `upload_id`.

Both take any status from 200 to 204 for success. blueimp does not send a chunk again by itself;
Uploady does as often as its `retries` say, which is not at all by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from app.domain.errors import ChunkMismatch, InvalidRequest
from app.protocols.forms.chunk import FormDialect, Piece

_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")

_FILENAME = re.compile(r'attachment; filename="([^"]*)"')


def parse_range(fields: Mapping[str, str]) -> Piece | None:
    """The chunk that Content-Range tells of; None without that header.

    Raises `InvalidRequest` for a malformed one and for an unknown length, `ChunkMismatch` for a
    range beyond the end.
    """
    if "content-range" not in fields:
        return None
    told = _RANGE.fullmatch(fields["content-range"])
    if told is None:
        raise InvalidRequest("Content-Range has to be as in `bytes 0-1023/4096`.")
    start, last, total = (int(number) for number in told.groups())
    if not start <= last < total:
        raise ChunkMismatch(f"A file of {total} bytes has no bytes {start} to {last}.")
    upload_id = fields.get("upload_id", "")
    return Piece(
        dialect="range",
        identity=(upload_id,),
        filename=_filename(fields.get("content-disposition", "")),
        start=start,
        length=last + 1 - start,
        total=total,
        is_named=bool(upload_id),
    )


def _filename(disposition: str) -> str:
    told = _FILENAME.fullmatch(disposition)
    return unquote(told[1]) if told else ""


DIALECT = FormDialect(("content-range",), parse_range)
