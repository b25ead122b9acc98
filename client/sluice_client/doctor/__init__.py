"""Finds out what stands between a client and its server, and what it does to uploads.

`examination.py` runs all checks and has those that need no body; `body_checks.py` has the others.
They use bare connections (`bare_http.py`), because an HTTP library would hide what they look for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found out; `advice` says what to change, line by line."""

    check: str
    level: Level
    text: str
    advice: tuple[str, ...] = ()
