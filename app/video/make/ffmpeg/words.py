"""What ffmpeg prints about an input, in the form of ffprobe's answer, where that is missing."""

from __future__ import annotations

import re
from typing import Any

_INPUT = re.compile(r"^Input #0, (\S+), from ", re.MULTILINE)
_DURATION = re.compile(r"^  Duration: (\d+):(\d\d):(\d\d\.\d+)", re.MULTILINE)
_STREAM = re.compile(
    r"^ {2,4}Stream #0:(\d+)(?:\[\w+\])?(?:\(([^)\s]+)\))?: (Video|Audio|Subtitle): (\w+)(.*)",
    re.MULTILINE,
)
"""A file's own texts are indented by six spaces or more."""

_CHANNELS = re.compile(r" Hz, (?:(mono|stereo)|(\d+)(?:\.(\d+)| channels))\b")
"""Layouts such as 5.1(side) have a digit for the channels all round, and one for the deep ones."""

_DOUBT = "detected only with low score"


def answer_in(words: str) -> dict[str, Any]:
    """`streams`, `format` and `chapters` as ffprobe has them, with the few members it can tell.

    Sizes, rates, chapters and rare channel layouts are missing.
    """
    container, duration = _INPUT.search(words), _DURATION.search(words)
    found: dict[str, Any] = {"format_name": container[1]} if container else {}
    if _DOUBT in words:
        found["probe_score"] = 1
    if duration:
        hours, minutes, seconds = map(float, duration.groups())
        found["duration"] = str(3600 * hours + 60 * minutes + seconds)
    streams = [_stream(match) for match in _STREAM.finditer(words)]
    return {"streams": streams, "format": found, "chapters": []}


def _stream(match: re.Match[str]) -> dict[str, Any]:
    index, language, kind, codec, rest = match.groups()
    return {
        "index": int(index),
        "codec_type": kind.lower(),
        "codec_name": codec,
        "channels": _channels(rest) if kind == "Audio" else None,
        "tags": {"language": language} if language else {},
        "disposition": {"attached_pic": int("(attached pic)" in rest)},
    }


def _channels(words: str) -> int | None:
    match = _CHANNELS.search(words)
    if match is None:
        return None
    name, around, deep = match.groups()
    return {"mono": 1, "stereo": 2}[name] if name else int(around) + int(deep or 0)
