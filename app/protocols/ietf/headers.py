"""Codecs of the header fields, which are structured fields (RFC 9651). Pure."""

from __future__ import annotations

import mimetypes
import re
from hashlib import new as new_hash
from typing import Any

from http_sfv.dictionary import Dictionary
from http_sfv.item import Item
from werkzeug.http import parse_options_header

from app.domain.errors import InvalidRequest
from app.domain.media_type import PLAYABLE
from app.http.digests import ALGORITHMS

MAX_INTEGER = 999_999_999_999_999
"""The largest Integer (RFC 9651, section 3.3.1); larger limits are announced as this."""

MAX_FIELD_CHARACTERS = 8190
"""Longest field that is parsed: one header line. Parsing time grows with the square of the length:
10 ms for this one, a minute for the 800 KB that 100 lines can hold."""

_EXTENDED_NAME = re.compile(r";\s*filename\*\s*=", re.IGNORECASE)


def parse_boolean(text: str, name: str) -> bool:
    """The Boolean in the field `name`; raises `InvalidRequest`."""
    value = _item(text, name)
    if not isinstance(value, bool):
        raise InvalidRequest(f"The {name} header must be ?0 or ?1.")
    return value


def parse_length(text: str, name: str) -> int:
    """The Integer in the field `name`, 0 or above; raises `InvalidRequest`."""
    value = _item(text, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidRequest(f"The {name} header must be a whole number of bytes.")
    return value


def write_limits(limits: dict[str, int]) -> str:
    """The value of `Upload-Limit`."""
    dictionary = Dictionary()
    for name, value in limits.items():
        dictionary[name] = min(value, MAX_INTEGER)
    return str(dictionary)


def parse_repr_digest(text: str) -> str | None:
    """The digest of the whole file as `algorithm:hex`; None without a known algorithm."""
    given = _dictionary(text, "Repr-Digest")
    for name, algorithm in ALGORITHMS.items():
        if name not in given:
            continue
        digest = given[name].value
        if not isinstance(digest, bytes) or len(digest) != new_hash(algorithm).digest_size:
            raise InvalidRequest(f"The Repr-Digest header has no {name} digest in it.")
        return f"{algorithm}:{digest.hex()}"
    return None


def write_repr_digest(name: str, digest: bytes) -> str:
    """The value of `Repr-Digest`; `name` is the algorithm's in the registry of RFC 9530."""
    dictionary = Dictionary()
    dictionary[name] = digest
    return str(dictionary)


def parse_wanted_digests(text: str) -> list[str]:
    """Names of known algorithms in `Want-Repr-Digest`, the preferred first (RFC 9530, 4)."""
    weights = {name: item.value for name, item in _dictionary(text, "Want-Repr-Digest").items()}
    if any(not isinstance(weight, int) for weight in weights.values()):
        raise InvalidRequest("The weights in the Want-Repr-Digest header must be whole numbers.")
    wanted = [name for name in weights if name in ALGORITHMS and weights[name] > 0]
    return sorted(wanted, key=lambda name: -weights[name])


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


def _item(text: str, name: str) -> Any:
    item = Item()
    _parse(item, text, name)
    return item.value


def _dictionary(text: str, name: str) -> Any:
    dictionary = Dictionary()
    if text.strip():  # An empty one counts as absent (RFC 9651, section 3.2).
        _parse(dictionary, text, name)
    return dictionary


def _parse(field: Item | Dictionary, text: str, name: str) -> None:
    if len(text) > MAX_FIELD_CHARACTERS:
        raise InvalidRequest(f"The {name} header is over {MAX_FIELD_CHARACTERS} characters.")
    try:
        field.parse(text.encode("latin-1"))
    except ValueError as error:
        raise InvalidRequest(f"The {name} header is malformed.") from error
