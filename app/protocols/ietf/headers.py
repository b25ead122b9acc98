"""Codecs of the header fields, which are structured fields (RFC 9651). Pure."""

from __future__ import annotations

import mimetypes
import re

from http_sfv.dictionary import Dictionary
from werkzeug.http import parse_options_header

from app.core.errors import InvalidRequest
from app.core.media_type import PLAYABLE
from app.http.structured_fields import parse_item

MAX_INTEGER = 999_999_999_999_999
"""The largest Integer (RFC 9651, section 3.3.1); larger limits are announced as this."""

_EXTENDED_NAME = re.compile(r";\s*filename\*\s*=", re.IGNORECASE)


def parse_boolean(text: str, name: str) -> bool:
    """The Boolean in the field `name`; raises `InvalidRequest`."""
    value = parse_item(text, name)
    if not isinstance(value, bool):
        raise InvalidRequest(f"The {name} header must be ?0 or ?1.")
    return value


def parse_length(text: str, name: str) -> int:
    """The Integer in the field `name`, 0 or above; raises `InvalidRequest`."""
    value = parse_item(text, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidRequest(f"The {name} header must be a whole number of bytes.")
    return value


def write_limits(limits: dict[str, int]) -> str:
    """The value of `Upload-Limit`."""
    dictionary = Dictionary()
    for name, value in limits.items():
        dictionary[name] = min(value, MAX_INTEGER)
    return str(dictionary)


def parse_filename(disposition: str, content_type: str) -> str:
    """The file's name in `Content-Disposition`; without one, "unnamed" with its type's extension.

    `filename*` (RFC 8187) takes precedence over `filename` in either order (RFC 6266, 4.3).
    """
    text = _EXTENDED_NAME.sub("; extended*=", _as_utf8(disposition))
    _, parameters = parse_options_header(text)
    name = parameters.get("extended") or parameters.get("filename")
    return name or "unnamed" + _extension(content_type)


def _extension(content_type: str) -> str:
    for extension, playable_type in PLAYABLE.items():
        if playable_type == content_type:
            return f".{extension}"
    return mimetypes.guess_extension(content_type) or ""


def _as_utf8(text: str) -> str:
    """`text` of clients that send names as raw UTF-8, which WSGI decodes as Latin-1."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text
