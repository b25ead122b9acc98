"""Subtitles that come as a file of their own: SubRip (SRT) and WebVTT. Anything else has no cues.

SubRip has no standard; https://www.w3.org/TR/webvtt1/ is that of WebVTT.
"""

from __future__ import annotations

import codecs
import operator
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import dropwhile, islice, takewhile

from app.video.index.texts import MAX_CUES, Cue, escaped, without_blank_lines

_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMING = re.compile(rf"\s{{0,8}}{_TIME}[ \t]{{0,8}}-->[ \t]{{0,8}}{_TIME}(?:[ \t]+(.{{0,200}}))?")
_SETTING = re.compile(r"(?:vertical|line|position|size|align):[\w.,%-]{1,20}")
_PLAIN_TAG = re.compile(r"&lt;(/?[biu])&gt;", re.IGNORECASE)
_DOUBLED_RETURN = re.compile(r"(?<!\r)\r+\n")
"""An end of a line as files have it that were converted twice."""
_OTHER_MARKUP = re.compile(r"</?font[^<>]{0,200}>|\{\\[^{}]{0,200}\}", re.IGNORECASE)
"""Colours, and places as SubStation has them."""


def decoded(data: bytes) -> str:
    """The text of a file whose encoding nobody says, perhaps cut off.

    UTF-16 with a byte order mark, or UTF-8; what is neither is Windows-1252.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data)
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def cues_of(text: str) -> list[Cue]:
    """The cues of a SubRip or WebVTT file, by when they begin."""
    is_webvtt = text.startswith("WEBVTT")
    lines = _DOUBLED_RETURN.sub("\n", text.replace("\0", "")).splitlines()
    found = islice(_cues(lines, is_webvtt=is_webvtt), MAX_CUES)
    return sorted(found, key=lambda cue: cue.start)


def _cues(lines: Sequence[str], *, is_webvtt: bool) -> Iterator[Cue]:
    """A cue is a line with its times, and those after it up to an empty one, or to the next cue.

    Some writers of SubRip put an empty line after the times, or none between two cues.
    """
    timings = ((number, _timing(line)) for number, line in enumerate(lines))
    begun = [(number, timing) for number, timing in timings if timing]
    ends = [_start_of_cue(lines, number) for number, _ in begun[1:]]
    for (number, timing), end in zip(begun, [*ends, len(lines)], strict=False):
        *times, settings = timing.groups()
        start, stop = _seconds(times[:4]), _seconds(times[4:])
        body = (line.strip() for line in lines[number + 1 : end])
        shown = body if is_webvtt else dropwhile(operator.not_, body)
        raw = "\n".join(takewhile(bool, shown))
        text = _webvtt_text(raw) if is_webvtt else _subrip_text(raw)
        if text and start < stop:
            yield Cue(start, stop, text, " ".join(_SETTING.findall(settings or "")))


def _timing(line: str) -> re.Match[str] | None:
    return _TIMING.match(line) if "-->" in line else None


def _start_of_cue(lines: Sequence[str], timing: int) -> int:
    """The line of its number, which comes before that of its times, if it has one."""
    has_number = timing > 0 and lines[timing - 1].strip().isdecimal()
    return timing - 1 if has_number else timing


def _seconds(parts: list[str | None]) -> Fraction:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return Fraction(1000 * whole + int(fraction.ljust(3, "0")), 1000)


def _webvtt_text(text: str) -> str:
    return without_blank_lines(text.replace("-->", "--&gt;"))


def _subrip_text(text: str) -> str:
    """Bold, italic and underlined are the same in WebVTT."""
    return _PLAIN_TAG.sub(lambda tag: f"<{tag[1].lower()}>", escaped(_OTHER_MARKUP.sub("", text)))
