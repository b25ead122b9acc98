"""What a check has to say."""

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
