"""HLS playlists (RFC 8216): how they are written, and those of a video from its manifest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from app.core.errors import NotMade
from app.core.lifecycle import UploadState
from app.core.playback import Made
from app.core.upload import Upload, UploadId
from app.video.serve.facts import MANIFEST, Manifest, Stream, VideoRange
from app.video.serve.folder import MadeFiles, read_whole
from app.video.serve.ladder import RenditionFormat

VERSION = 7
"""The protocol version that fragmented MP4 with separate audio needs (RFC 8216, section 7)."""

MediaType = Literal["AUDIO", "SUBTITLES"]
AUDIO_GROUP, SUBTITLES_GROUP = "audio", "subtitles"


@dataclass(frozen=True, slots=True)
class Variant:
    """A video rendition, with audio."""

    uri: str
    bandwidth: int
    """Peak bits per second, over any segment."""
    average_bandwidth: int
    codecs: Sequence[str]
    """Of the video and the audio tracks."""
    width: int = 0
    height: int = 0
    frame_rate: Fraction = Fraction()
    video_range: VideoRange = "SDR"

    def tag(self, groups: set[MediaType]) -> str:
        """Its `EXT-X-STREAM-INF` tag; `groups` are those of the playlist."""
        attributes = [
            f"BANDWIDTH={self.bandwidth}",
            f"AVERAGE-BANDWIDTH={self.average_bandwidth}",
            f'CODECS="{",".join(dict.fromkeys(self.codecs))}"',
        ]
        if self.height:
            attributes.append(f"RESOLUTION={self.width}x{self.height}")
        if self.frame_rate:
            attributes.append(f"FRAME-RATE={float(self.frame_rate):.3f}")
        if self.height:
            attributes.append(f"VIDEO-RANGE={self.video_range}")
        if "AUDIO" in groups:
            attributes.append(f'AUDIO="{AUDIO_GROUP}"')
        if "SUBTITLES" in groups:
            attributes.append(f'SUBTITLES="{SUBTITLES_GROUP}"')
        return "#EXT-X-STREAM-INF:" + ",".join((*attributes, "CLOSED-CAPTIONS=NONE"))


@dataclass(frozen=True, slots=True)
class Alternative:
    """An audio or subtitle track that a viewer may select."""

    media_type: MediaType
    uri: str
    name: str
    language: str
    is_default: bool
    channels: int = 0

    def tag(self, name: str) -> str:
        """Its `EXT-X-MEDIA` tag, with a name that is unique in its group."""
        group = AUDIO_GROUP if self.media_type == "AUDIO" else SUBTITLES_GROUP
        attributes = [
            f"TYPE={self.media_type}",
            f'GROUP-ID="{group}"',
            f'NAME="{name}"',
            f"DEFAULT={'YES' if self.is_default else 'NO'}",
            "AUTOSELECT=YES",
        ]
        if self.language and self.language != "und":
            attributes.append(f'LANGUAGE="{_quotable(self.language)}"')
        if self.channels:
            attributes.append(f'CHANNELS="{self.channels}"')
        return "#EXT-X-MEDIA:" + ",".join((*attributes, f'URI="{self.uri}"'))


def master_playlist(variants: Iterable[Variant], alternatives: Sequence[Alternative] = ()) -> str:
    """The master playlist, which lists all media playlists."""
    groups = {alternative.media_type for alternative in alternatives}
    lines = ["#EXTM3U", f"#EXT-X-VERSION:{VERSION}"]
    lines += [each.tag(name) for each, name in _named(alternatives)]
    for variant in variants:
        lines += [variant.tag(groups), variant.uri]
    return "\n".join((*lines, ""))


def segment_lines(durations: Iterable[float]) -> list[str]:
    """The entry of each segment in a media playlist; durations in seconds, with six decimals.

    Segments are `1.m4s`, `2.m4s` and so on, in the folder of `init.mp4`.
    """
    return [f"#EXTINF:{lasts:.6f},\n{number}.m4s" for number, lasts in enumerate(durations, 1)]


def media_playlist(lines: Sequence[str], longest: float, *, available: int | None = None) -> str:
    """The playlist of a rendition with these `segment_lines`; `longest` is a duration in seconds.

    During an upload, only the first `available` segments are listed, and players reload the
    playlist.
    """
    is_growing = available is not None
    head = [
        "#EXTM3U",
        f"#EXT-X-VERSION:{VERSION}",
        f"#EXT-X-TARGETDURATION:{max(math.ceil(longest), 1)}",
        "#EXT-X-MEDIA-SEQUENCE:1",
        f"#EXT-X-PLAYLIST-TYPE:{'EVENT' if is_growing else 'VOD'}",
        # Otherwise players start near the end of a growing playlist.
        *(("#EXT-X-START:TIME-OFFSET=0",) if is_growing else ()),
        '#EXT-X-MAP:URI="init.mp4"',
    ]
    end = () if is_growing else ("#EXT-X-ENDLIST",)
    return "\n".join((*head, *lines[:available], *end, ""))


def whole_file_playlist(uri: str, seconds: float) -> str:
    """The playlist of a rendition that is one file, such as subtitles (RFC 8216, section 3.5).

    Without X-TIMESTAMP-MAP the times of cues are media times, which begin at 0.
    """
    lines = [
        "#EXTM3U",
        f"#EXT-X-VERSION:{VERSION}",
        f"#EXT-X-TARGETDURATION:{max(math.ceil(seconds), 1)}",
        "#EXT-X-PLAYLIST-TYPE:VOD",
        f"#EXTINF:{seconds:.6f},",
        uri,
        "#EXT-X-ENDLIST",
    ]
    return "\n".join((*lines, ""))


def _named(alternatives: Sequence[Alternative]) -> list[tuple[Alternative, str]]:
    """Gives each a name that is unique in its group (RFC 8216, section 4.3.4.1.1)."""
    taken: set[tuple[str, str]] = set()
    named = []
    for each in alternatives:
        language = each.language if each.language != "und" else ""
        base = _quotable(each.name or language) or each.media_type.capitalize()
        name, number = base, 2
        while (each.media_type, name) in taken:
            name, number = f"{base} {number}", number + 1
        taken.add((each.media_type, name))
        named.append((each, name))
    return named


def _quotable(text: str) -> str:
    """Text that is valid in a quoted string (RFC 8216, section 4.2)."""
    return "".join("'" if character == '"' else character for character in text if character >= " ")


# ---- of a video ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subtitles:
    """Subtitles of a video; `name` is the name of their file without `.vtt`."""

    name: str
    language: str
    """BCP 47; "und" if unknown."""
    title: str | None = None


class Playlists:
    """The HLS playlists. Each method raises `NotMade`."""

    def __init__(self, folder: MadeFiles) -> None:
        self._folder = folder
        self._manifest = lru_cache(maxsize=8)(self._read)
        self._lines = lru_cache(maxsize=16)(self._written_lines)

    def master(
        self, video: Upload, formats: Sequence[RenditionFormat], subtitles: Sequence[Subtitles] = ()
    ) -> str:
        """The master playlist: the streams of the video, renditions in `formats`, subtitles."""
        manifest = self.manifest(video.id)
        sounds = [stream for stream in manifest.streams if stream.kind == "audio"]
        picture, texts = manifest.picture, list(map(_alternative_of_subtitles, subtitles))
        if picture is None:
            return master_playlist([_variant(each.name, each, []) for each in sounds[:1]], texts)
        variants = [_variant(picture.name, picture, sounds)] if picture.is_played else []
        variants += [_variant(f"{each.quality}", each, sounds) for each in formats]
        if not variants:
            raise NotMade("Browsers cannot play the video, and no renditions of it are offered.")
        alternatives = [
            Alternative(
                "AUDIO",
                f"{stream.name}/index.m3u8",
                stream.title,
                stream.language,
                is_default=stream is sounds[0],
                channels=stream.channels,
            )
            for stream in sounds
        ]
        return master_playlist(variants, alternatives + texts)

    def of_stream(self, video: Upload, name: str) -> str:
        """The media playlist of a stream; during an upload, of its available segments."""
        stored = self._stored(video.id)
        lines, longest = self._lines(stored, name, is_rendition=False)
        stream = self._stream(stored, name)
        is_complete = video.state is UploadState.COMPLETE
        available = None if is_complete else stream.available(video.offset)
        return media_playlist(lines, longest, available=available)

    def of_renditions(self, upload_id: UploadId) -> str:
        """The media playlist of any rendition."""
        stored = self._stored(upload_id)
        picture = self._manifest(stored).picture
        if picture is None:
            raise NotMade("The video has no video track.")
        return media_playlist(*self._lines(stored, picture.name, is_rendition=True))

    def of_subtitles(self, upload_id: UploadId, subtitles: Subtitles) -> str:
        """The media playlist of subtitles, which are a single file."""
        first = self._manifest(self._stored(upload_id)).streams[0]
        return whole_file_playlist(f"../../{subtitles.name}.vtt", sum(first.durations))

    def stream(self, upload_id: UploadId, name: str) -> Stream:
        """The stream of that name."""
        return self._stream(self._stored(upload_id), name)

    def _stream(self, stored: Made, name: str) -> Stream:
        found = self._manifest(stored).stream(name)
        if found is None:
            raise NotMade("The video has no stream of this name.")
        return found

    def manifest(self, upload_id: UploadId) -> Manifest:
        """The stored manifest of a video."""
        return self._manifest(self._stored(upload_id))

    def _stored(self, upload_id: UploadId) -> Made:
        found = self._folder.find(upload_id, MANIFEST)
        if found is None:
            raise NotMade("The video cannot be played in segments, at least not yet.")
        return found

    def _read(self, stored: Made) -> Manifest:
        """Reads a manifest; the new one, if it has just been replaced."""
        try:
            return Manifest.from_json(read_whole(self._folder, stored.upload_id, stored.name))
        except FileNotFoundError as error:
            raise NotMade("The video is being indexed again.") from error

    def _written_lines(
        self, stored: Made, name: str, *, is_rendition: bool
    ) -> tuple[Sequence[str], float]:
        """A playlist's lines for each segment of a stream, and the longest duration.

        Cached: a video of two hours takes 1 ms, and 0.03 ms from the cache.
        """
        stream = self._stream(stored, name)
        durations = stream.rung_segments if is_rendition else stream.durations
        return segment_lines(durations), max(durations, default=1.0)


def _variant(name: str, video: Stream | RenditionFormat, sounds: Sequence[Stream]) -> Variant:
    """The stream or rendition of that name, with its audio."""
    return Variant(
        f"{name}/index.m3u8",
        video.peak_rate + max((sound.peak_rate for sound in sounds), default=0),
        video.mean_rate + max((sound.mean_rate for sound in sounds), default=0),
        [video.codecs, *(sound.codecs for sound in sounds)],
        video.width,
        video.height,
        Fraction(video.frame_rate),
        video.video_range if isinstance(video, Stream) else "SDR",
    )


def _alternative_of_subtitles(subtitles: Subtitles) -> Alternative:
    return Alternative(
        "SUBTITLES",
        f"{subtitles.name}/index.m3u8",
        subtitles.title or "",
        subtitles.language,
        is_default=False,
    )
