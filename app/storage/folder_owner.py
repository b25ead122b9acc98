"""Names paths and their owners in messages to operators."""

from __future__ import annotations

import pwd
from pathlib import Path


def shown(path: Path) -> str:
    """Returns the path as one line that any terminal or log can display."""
    text = str(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def user_name(number: int) -> str:
    """Names the owner of a file, such as "the user sluice"."""
    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
