"""The playlists of a film, from its stored manifest. Both are read once for all who ask."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from app.core.errors import NotMade
from app.core.lifecycle import UploadState
from app.core.made_files import Made
from app.core.upload import Upload, UploadId
from app.video.index.playlists import (
    Alternative,
    Variant,
    master_playlist,
    media_playlist,
    segment_lines,
    whole_file_playlist,
)
from app.video.serve.film_files import MANIFEST
from app.video.serve.folder import MadeFiles, read_whole
from app.video.serve.ladder import Rung
from app.video.serve.manifest import Manifest, Stream
from app.video.serve.subtitles import Subtitles


class Playlists:
    """What HLS players load before any media. Each method raises `NotMade`."""

    def __init__(self, folder: MadeFiles) -> None:
        self._folder = folder
        self._manifest = lru_cache(maxsize=8)(self._read)
        self._lines = lru_cache(maxsize=16)(self._written_lines)

    def master(
        self, video: Upload, rungs: Sequence[Rung], subtitles: Sequence[Subtitles] = ()
    ) -> str:
        """The playlist of the film's streams, of its `rungs`, and of its subtitles."""
        manifest = self.manifest(video.id)
        sounds = [stream for stream in manifest.streams if stream.kind == "audio"]
        picture, texts = manifest.picture, list(map(_text_alternative, subtitles))
        if picture is None:
            return master_playlist([_variant(stream, []) for stream in sounds[:1]], texts)
        variants = [_variant(picture, sounds)] if picture.is_played else []
        variants += [_variant_of(rung, sounds) for rung in rungs]
        if not variants:
            raise NotMade("Browsers cannot play the film, and no other quality of it is offered.")
        alternatives = [_alternative(stream, is_default=stream is sounds[0]) for stream in sounds]
        return master_playlist(variants, alternatives + texts)

    def of_stream(self, video: Upload, name: str) -> str:
        """The segments of a stream, as far as they have arrived."""
        stored = self._stored(video.id)
        lines, longest = self._lines(stored, name, is_rung=False)
        stream = self._stream(stored, name)
        is_complete = video.state is UploadState.COMPLETE
        available = None if is_complete else stream.available(video.offset)
        return media_playlist(lines, longest, available=available)

    def of_rungs(self, upload_id: UploadId) -> str:
        """The segments of the picture in any other quality."""
        stored = self._stored(upload_id)
        picture = self._manifest(stored).picture
        if picture is None:
            raise NotMade("The film has no picture.")
        return media_playlist(*self._lines(stored, picture.name, is_rung=True))

    def of_subtitles(self, upload_id: UploadId, subtitles: Subtitles) -> str:
        """Subtitles of a film, which are one file beside its streams."""
        first = self._manifest(self._stored(upload_id)).streams[0]
        return whole_file_playlist(f"../../{subtitles.name}.vtt", sum(first.durations))

    def stream(self, upload_id: UploadId, name: str) -> Stream:
        """The stream of that name."""
        return self._stream(self._stored(upload_id), name)

    def _stream(self, stored: Made, name: str) -> Stream:
        found = self._manifest(stored).stream(name)
        if found is None:
            raise NotMade("The film has no stream of this name.")
        return found

    def manifest(self, upload_id: UploadId) -> Manifest:
        """The streams that the index made of the film."""
        return self._manifest(self._stored(upload_id))

    def _stored(self, upload_id: UploadId) -> Made:
        found = self._folder.find(upload_id, MANIFEST)
        if found is None:
            raise NotMade("The film cannot be played in segments, at least not yet.")
        return found

    def _read(self, stored: Made) -> Manifest:
        """The content of a manifest; if it was replaced meanwhile, of the new one."""
        try:
            return Manifest.from_json(read_whole(self._folder, stored.upload_id, stored.name))
        except FileNotFoundError as error:
            raise NotMade("The film is being indexed again.") from error

    def _written_lines(
        self, stored: Made, name: str, *, is_rung: bool
    ) -> tuple[Sequence[str], float]:
        """A playlist's lines for each segment of a stream, and the longest duration.

        Cached, as a film of two hours takes 1 ms, and 0.03 ms from the cache.
        """
        stream = self._stream(stored, name)
        durations = stream.rung_segments if is_rung else stream.durations
        return segment_lines(durations), max(durations, default=1.0)


def _variant(stream: Stream, sounds: Sequence[Stream]) -> Variant:
    """A stream, and the sound that is played with it."""
    return Variant(
        f"{stream.name}/index.m3u8",
        stream.peak_rate + max((sound.peak_rate for sound in sounds), default=0),
        stream.mean_rate + max((sound.mean_rate for sound in sounds), default=0),
        [stream.codecs, *(sound.codecs for sound in sounds)],
        stream.width,
        stream.height,
        Fraction(stream.frame_rate),
        stream.video_range,
    )


def _variant_of(rung: Rung, sounds: Sequence[Stream]) -> Variant:
    """Another quality, with the same sound."""
    return Variant(
        f"{rung.quality}/index.m3u8",
        rung.peak_rate + max((sound.peak_rate for sound in sounds), default=0),
        rung.mean_rate + max((sound.mean_rate for sound in sounds), default=0),
        [rung.codecs, *(sound.codecs for sound in sounds)],
        rung.width,
        rung.height,
        Fraction(rung.frame_rate),
    )


def _alternative(stream: Stream, *, is_default: bool) -> Alternative:
    return Alternative(
        "AUDIO",
        f"{stream.name}/index.m3u8",
        stream.title,
        stream.language,
        is_default,
        stream.channels,
    )


def _text_alternative(subtitles: Subtitles) -> Alternative:
    return Alternative(
        "SUBTITLES",
        f"{subtitles.name}/index.m3u8",
        subtitles.title or "",
        subtitles.language,
        is_default=False,
    )
