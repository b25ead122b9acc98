"""WebVTT: text for moments of a film (https://www.w3.org/TR/webvtt1/)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Cue(NamedTuple):
    """What is shown from `start` to `end`, in seconds; `text` may have lines, and is no markup."""

    start: float
    end: float
    text: str


def webvtt(cues: Iterable[Cue]) -> str:
    """A file of those cues that can be shown at all: they last, and have text."""
    shown = ((cue, _payload(cue.text)) for cue in cues if cue.end > cue.start)
    blocks = (f"{_time(cue.start)} --> {_time(cue.end)}\n{text}\n" for cue, text in shown if text)
    return "\n".join(["WEBVTT\n", *blocks])


def _time(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"


def _payload(text: str) -> str:
    """Text as what it is: no markup, no arrow, and no empty line, which would end the cue."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    lines = escaped.replace("\0", "\ufffd").splitlines()
    return "\n".join(line for line in lines if line.strip())
