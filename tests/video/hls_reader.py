"""Reads HLS as RFC 8216 says, apart from any player: every rendition whole, in files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from itertools import accumulate, pairwise
from pathlib import Path
from urllib.parse import urljoin

import requests

from tests.video.frames import Showing, packets, watch

KEY_TOLERANCE = 0.002
"""Seconds: EXTINF has three decimals or more."""

_ATTRIBUTE = re.compile(r'([A-Z0-9-]+)=("[^"]*"|[^,]*)')


@dataclass(frozen=True)
class Rendition:
    """One media playlist: its attributes in the master playlist and what it lists."""

    attributes: dict[str, str]
    tags: dict[str, str]
    seconds: tuple[float, ...]
    file: Path

    @property
    def duration(self) -> float:
        """Of all segments."""
        return sum(self.seconds)


@dataclass(frozen=True)
class Stream:
    """Everything that a master playlist offers; variants in its order."""

    variants: tuple[Rendition, ...]
    sounds: tuple[Rendition, ...]

    def showing(self, variant: int = 0) -> Showing:
        """A variant's picture with every audio track."""
        picture = watch(self.variants[variant].file)
        apart = tuple(beeps for sound in self.sounds for beeps in watch(sound.file).beeps)
        return Showing(picture.frames, picture.beeps + apart)


def download(master: str, folder: Path) -> Stream:
    """All renditions of a master playlist, each as one file in the folder."""
    folder.mkdir(exist_ok=True)
    with requests.Session() as session:
        lines = _lines(session, master)
        sounds = [
            _rendition(session, urljoin(master, attributes["URI"]), attributes, folder)
            for name, attributes in map(_tag, lines)
            if name == "EXT-X-MEDIA" and attributes["TYPE"] == "AUDIO" and "URI" in attributes
        ]
        variants = [
            _rendition(session, urljoin(master, after), _tag(line)[1], folder)
            for line, after in pairwise(lines)
            if line.startswith("#EXT-X-STREAM-INF:")
        ]
    return Stream(tuple(variants), tuple(sounds))


def faults(rendition: Rendition, *, has_picture: bool) -> list[str]:
    """What breaks the rules for a playlist of a complete film whose segments start at key frames.

    Sections are of RFC 8216.
    """
    return [*_broken_tags(rendition), *(_segments_off_key_frames(rendition) if has_picture else [])]


def _broken_tags(rendition: Rendition) -> Iterator[str]:
    if "EXT-X-ENDLIST" not in rendition.tags:
        yield "the playlist does not end"
    if rendition.tags.get("EXT-X-PLAYLIST-TYPE") != "VOD":
        yield "the playlist may still change"
    target = int(rendition.tags["EXT-X-TARGETDURATION"])
    if longest := [seconds for seconds in rendition.seconds if round(seconds) > target]:
        yield f"segments of {longest} s are longer than {target} s (4.3.3.1)"


def _segments_off_key_frames(rendition: Rendition) -> Iterator[str]:
    found = packets(rendition.file, "v:0")
    places = [place for place, packet in enumerate(found) if packet.is_key]
    groups = [found[start:end] for start, end in pairwise([*places, len(found)])]
    # In an open group, frames that are decoded after the key frame are shown before it.
    starts = [min(packet.presented for packet in group) for group in groups]
    for start in list(accumulate(rendition.seconds, initial=starts[0]))[:-1]:
        if not any(abs(start - possible) <= KEY_TOLERANCE for possible in starts):
            yield f"no key frame is at {start:.3f} s, where a segment begins"
    if any(after.decoded <= before.decoded for before, after in pairwise(found)):
        yield "decoding times do not grow"


def _rendition(
    session: requests.Session, url: str, attributes: dict[str, str], folder: Path
) -> Rendition:
    lines = _lines(session, url)
    file = folder / re.sub(r"\W+", "-", attributes.get("URI", url).partition("://")[2] or url)
    tags = {name: value for name, _, value in (line[1:].partition(":") for line in lines)}
    parts = [attributes["URI"] for name, attributes in map(_tag, lines) if name == "EXT-X-MAP"]
    parts += [line for line in lines if not line.startswith("#")]
    with file.with_suffix(".mp4").open("wb") as whole:
        for part in parts:
            whole.write(_get(session, urljoin(url, part)).content)
    seconds = [line[8:].partition(",")[0] for line in lines if line.startswith("#EXTINF:")]
    return Rendition(attributes, tags, tuple(map(float, seconds)), file.with_suffix(".mp4"))


def _lines(session: requests.Session, url: str) -> list[str]:
    lines = [line.strip() for line in _get(session, url).text.splitlines()]
    assert lines[0] == "#EXTM3U", f"{url} is no playlist"
    return [line for line in lines if line]


def _get(session: requests.Session, url: str) -> requests.Response:
    answer = session.get(url, timeout=60)
    while answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:  # It is still being made.
        time.sleep(float(answer.headers["Retry-After"]))
        answer = session.get(url, timeout=60)
    answer.raise_for_status()
    return answer


def _tag(line: str) -> tuple[str, dict[str, str]]:
    name, _, value = line.removeprefix("#").partition(":")
    return name, {key: text.strip('"') for key, text in _ATTRIBUTE.findall(value)}
