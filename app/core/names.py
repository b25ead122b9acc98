"""Display names of people, projects, keys and so on."""

from __future__ import annotations

from app.core.errors import InvalidField

MAX_NAME_CHARACTERS = 100


def clean_name(text: str, *, field: str = "name") -> str:
    """The name on one line; raises `InvalidField` if it is empty, too long or unprintable.

    `field` names the form field.
    """
    name = " ".join(text.split())
    if not name:
        raise InvalidField("Enter a name.", field=field)
    if len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise InvalidField(f"Use at most {MAX_NAME_CHARACTERS} ordinary characters.", field=field)
    return name
