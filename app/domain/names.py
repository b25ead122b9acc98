"""Names that people give to projects, keys and the like."""

from __future__ import annotations

import unicodedata

from app.domain.errors import InvalidField

MAX_NAME_CHARACTERS = 100


def check_name(text: str, *, field: str = "name") -> str:
    """The name normalised (NFC); raises `InvalidField` unless it is a line of 1 to 100 characters.

    `field` is where it was entered.
    """
    name = unicodedata.normalize("NFC", text).strip()
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidField(f"A name has 1 to {MAX_NAME_CHARACTERS} characters.", field=field)
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in name):
        raise InvalidField("A name has no line breaks or control characters.", field=field)
    return name
