"""Header fields that are structured fields (RFC 9651)."""

from __future__ import annotations

from typing import Any

from http_sfv.dictionary import Dictionary
from http_sfv.item import Item

from app.core.errors import InvalidRequest

MAX_FIELD_CHARACTERS = 8190
"""Longest field that is parsed: one header line. Parsing time grows with the square of the length:
10 ms for this one, a minute for the 800 KB that 100 lines can hold."""


def parse_item(text: str, name: str) -> Any:
    """The value in the field `name`; raises `InvalidRequest`."""
    item = Item()
    _parse(item, text, name)
    return item.value


def parse_dictionary(text: str, name: str) -> Any:
    """The Dictionary in the field `name`, empty if that is; raises `InvalidRequest`."""
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
