"""HLS playlists (RFC 8216): how they are written, and those of a video from its manifest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from app.core.errors import NotMade
from app.core.lifecycle import UploadState
from app.core.playback import Made
from app.core.upload import Upload, UploadId
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import MANIFEST, Manifest, Stream
from app.video.serve.ladder import RenditionFormat

VERSION = 7
"""The protocol version that fragmented MP4 with separate audio needs (RFC 8216, section 7)."""

MediaType = Literal["AUDIO", "SUBTITLES"]
AUDIO_GROUP, SUBTITLES_GROUP = "audio", "subtitles"


@dataclass(frozen=True, slots=True)
class Subtitles:
    """Subtitles of a video; `name` is the name of their file without `.vtt`."""

    name: str
    language: str
    """BCP 47; "und" if unknown."""
    title: str | None = None


def master_playlist(
    manifest: Manifest,
    formats: Sequence[RenditionFormat] = (),
    subtitles: Sequence[Subtitles] = (),
) -> str:
    """The master playlist, which lists the media playlists; raises `NotMade`.

    Those of the streams of the video, of renditions in `formats`, and of subtitles. A variant is
    the stream of the video track or a rendition of it, or without a video track the first audio.
    """
    picture = manifest.picture
    sounds = [stream for stream in manifest.streams if stream.kind == "audio"]
    variants: list[tuple[str, Stream | RenditionFormat]]
    if picture is None:
        variants, sounds = [(each.name, each) for each in sounds[:1]], []
    else:
        variants = [(picture.name, picture)] if picture.is_played else []
        variants += [(str(each.quality), each) for each in formats]
        if not variants:
            raise NotMade("Browsers cannot play the video, and no renditions of it are offered.")
    groups = [f'AUDIO="{AUDIO_GROUP}"'] if sounds else []
    groups += [f'SUBTITLES="{SUBTITLES_GROUP}"'] if subtitles else []
    lines = ["#EXTM3U", f"#EXT-X-VERSION:{VERSION}"]
    lines += [*_media_tags("AUDIO", sounds), *_media_tags("SUBTITLES", subtitles)]
    for name, video in variants:
        lines += [_variant_tag(video, sounds, groups), f"{name}/index.m3u8"]
    return "\n".join((*lines, ""))


def _variant_tag(
    video: Stream | RenditionFormat, sounds: Sequence[Stream], groups: Sequence[str]
) -> str:
    """The `EXT-X-STREAM-INF` tag of a stream or rendition with its audio.

    Its bandwidth is the peak of bits per second over any segment.
    """
    peak_rate = video.peak_rate + max((sound.peak_rate for sound in sounds), default=0)
    mean_rate = video.mean_rate + max((sound.mean_rate for sound in sounds), default=0)
    codecs = dict.fromkeys([video.codecs, *(sound.codecs for sound in sounds)])
    attributes = [
        f"BANDWIDTH={peak_rate}",
        f"AVERAGE-BANDWIDTH={mean_rate}",
        f'CODECS="{",".join(codecs)}"',
    ]
    if video.height:
        attributes.append(f"RESOLUTION={video.width}x{video.height}")
    if video.frame_rate:
        attributes.append(f"FRAME-RATE={video.frame_rate:.3f}")
    if video.height:
        video_range = video.video_range if isinstance(video, Stream) else "SDR"
        attributes.append(f"VIDEO-RANGE={video_range}")
    return "#EXT-X-STREAM-INF:" + ",".join((*attributes, *groups, "CLOSED-CAPTIONS=NONE"))


def _media_tags(kind: MediaType, tracks: Sequence[Stream | Subtitles]) -> Iterator[str]:
    """Yields the `EXT-X-MEDIA` tags of tracks that a viewer may select, the first audio by default.

    Names are unique in their group (RFC 8216, section 4.3.4.1.1).
    """
    group = AUDIO_GROUP if kind == "AUDIO" else SUBTITLES_GROUP
    taken: set[str] = set()
    for track in tracks:
        language = track.language if track.language != "und" else ""
        base = _quotable(track.title or language) or kind.capitalize()
        name, number = base, 2
        while name in taken:
            name, number = f"{base} {number}", number + 1
        is_default = kind == "AUDIO" and not taken
        taken.add(name)
        attributes = [
            f"TYPE={kind}",
            f'GROUP-ID="{group}"',
            f'NAME="{name}"',
            f"DEFAULT={'YES' if is_default else 'NO'}",
            "AUTOSELECT=YES",
        ]
        if language:
            attributes.append(f'LANGUAGE="{_quotable(language)}"')
        if isinstance(track, Stream) and track.channels:
            attributes.append(f'CHANNELS="{track.channels}"')
        yield "#EXT-X-MEDIA:" + ",".join((*attributes, f'URI="{track.name}/index.m3u8"'))


def _quotable(text: str) -> str:
    """Text that is valid in a quoted string (RFC 8216, section 4.2)."""
    return "".join("'" if character == '"' else character for character in text if character >= " ")


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


# ---- of a video ----------------------------------------------------------------------------------


class Playlists:
    """The HLS playlists. Each method raises `NotMade`."""

    def __init__(self, files: DerivedFiles) -> None:
        self._files = files
        self._manifest = lru_cache(maxsize=8)(self._read)
        self._lines = lru_cache(maxsize=16)(self._written_lines)

    def master(
        self, video: Upload, formats: Sequence[RenditionFormat], subtitles: Sequence[Subtitles] = ()
    ) -> str:
        """The master playlist: the streams of the video, renditions in `formats`, subtitles."""
        return master_playlist(self.manifest(video.id), formats, subtitles)

    def of_stream(self, video: Upload, name: str) -> str:
        """The media playlist of a stream; during an upload, of its available segments."""
        stored = self._stored(video.id)
        lines, longest = self._lines(stored, name, is_rendition=False)
        stream = self._manifest(stored).stream(name)
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
        return self.manifest(upload_id).stream(name)

    def manifest(self, upload_id: UploadId) -> Manifest:
        """The stored manifest of a video."""
        return self._manifest(self._stored(upload_id))

    def _stored(self, upload_id: UploadId) -> Made:
        found = self._files.find(upload_id, MANIFEST)
        if found is None:
            raise NotMade("The video cannot be played in segments, at least not yet.")
        return found

    def _read(self, stored: Made) -> Manifest:
        """Reads a manifest; the new one, if it has just been replaced."""
        try:
            return Manifest.from_json(self._files.read(stored.upload_id, stored.name))
        except FileNotFoundError as error:
            raise NotMade("The video is being indexed again.") from error

    def _written_lines(
        self, stored: Made, name: str, *, is_rendition: bool
    ) -> tuple[Sequence[str], float]:
        """A playlist's lines for each segment of a stream, and the longest duration.

        Cached: a video of two hours takes 1 ms, and 0.03 ms from the cache.
        """
        stream = self._manifest(stored).stream(name)
        durations = stream.rung_segments if is_rendition else stream.durations
        return segment_lines(durations), max(durations, default=1.0)
