"""Names paths and their owners in messages to operators."""

from __future__ import annotations

import pwd
from pathlib import Path


def shown(path: Path) -> str:
    """The path in one line that every terminal and log can show."""
    text = str(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def user_name(number: int) -> str:
    """The owner of a file, as in "the user sluice"."""
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
