"""Playback states of videos, and the files that players load, for the web application."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from io import RawIOBase

from app.core.access import Scope
from app.core.errors import NotMade, UploadNotFound
from app.core.jobs import REMUX, Job, JobState
from app.core.lifecycle import UploadState
from app.core.playback import Made, Playback, PlaybackProblem, PlaybackState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind
from app.db.jobs import JobRecords
from app.records.uploads import UploadRecords
from app.video.index.playlists import (
    Alternative,
    Variant,
    master_playlist,
    media_playlist,
    segment_lines,
    whole_file_playlist,
)
from app.video.index.virtual_file import Piece, StoredVirtualFile
from app.video.serve.facts import Facts, Manifest, Stream
from app.video.serve.folder import MadeFiles, read_whole
from app.video.serve.ladder import RenditionFormat
from app.video.serve.rows import MediaRecords
from app.video.serve.source import MediaSource
from app.video.serve.subtitles import Subtitles
from app.video.serve.video_files import MANIFEST, PLAY_FILE

CONTENT_TYPES = {
    "jpg": "image/jpeg",
    "vtt": "text/vtt; charset=utf-8",
    "json": "application/json",
}
"""Content types of derived files that can be requested by name; `_MADE` matches their names."""

_MADE = re.compile(
    r"(?:poster|sprite)\.jpg|(?:thumbs|chapters|subs-[0-9]{1,2})\.vtt|waveform\.json"
)


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A derived file of a video."""

    folder: MadeFiles
    upload_id: UploadId
    name: str

    @property
    def content_type(self) -> str:
        """The content type, from the file extension."""
        return CONTENT_TYPES[self.name.rpartition(".")[2]]

    @property
    def exists(self) -> bool:
        """Whether it has been made."""
        return self.folder.find(self.upload_id, self.name) is not None

    def open(self) -> tuple[Made, RawIOBase]:
        """Opens the file, unbuffered; raises `NotMade`."""
        try:
            return self.folder.open(self.upload_id, self.name)
        except FileNotFoundError as error:
            raise NotMade("This has not been made of the video.") from error


@dataclass(frozen=True, slots=True)
class VirtualPart:
    """A span of an open virtual file, with the source of its bytes."""

    made: Made
    file: StoredVirtualFile
    span: ByteRange
    open_source: Callable[[], RawIOBase]

    def pieces(self, wanted: ByteRange) -> Iterator[Piece]:
        """The pieces of a span relative to the start of this one."""
        start = self.span.start
        return self.file.pieces(ByteRange(start + wanted.start, start + wanted.end))


@dataclass(frozen=True, slots=True)
class PlaybackView:
    """The playback state of a video; `made` has the names of its derived files."""

    upload_id: UploadId
    state: PlaybackState
    facts: Facts | None
    problem: PlaybackProblem | None
    made: frozenset[str]
    progress: float | None = None
    """Progress of the job that makes it playable, from 0 to 1; None if it has not started."""


def subtitles_of(view: PlaybackView) -> list[Subtitles]:
    """The subtitles made from the text tracks of a video, in file order."""
    tracks = view.facts.of_kind("text") if view.facts else []
    return [
        Subtitles(f"subs-{number}", track.language, track.title)
        for number, track in enumerate(tracks, start=1)
        if f"subs-{number}.vtt" in view.made
    ]


class MediaLibrary:
    """Read access to videos for players. All files are made by the media worker."""

    def __init__(
        self,
        uploads: UploadRecords,
        media: MediaRecords,
        jobs: JobRecords,
        *,
        source: MediaSource,
        folder: MadeFiles,
        playlists: Playlists,
    ) -> None:
        self._uploads = uploads
        self._media = media
        self._jobs = jobs
        self._source = source
        self._folder = folder
        self._playlists = playlists

    def playbacks(self, videos: Sequence[Upload]) -> list[PlaybackView]:
        """The playback state of each video, in the given order."""
        known = self._media.of([video.id for video in videos])
        probed = [each for each, found in known.items() if found.state is PlaybackState.PROBED]
        jobs = self._jobs.of_step(probed, REMUX) if probed else {}
        made = self._folder.made(list(known))
        return [
            _view(found, jobs.get(video.id), made[video.id])
            if (found := known.get(video.id))
            else PlaybackView(video.id, PlaybackState.WAITING, None, None, frozenset())
            for video in videos
        ]

    def watched(self, scope: Scope, upload_id: UploadId) -> Upload:
        """A video, or an active upload that may be playable; raises like `get`."""
        upload = scope.require(self._uploads.get(upload_id))
        if upload.kind is UploadKind.PARTIAL:  # A partial upload is not a video.
            raise UploadNotFound("No video has this id.")
        return upload.require_present()

    def play_file(self, video: Upload) -> VirtualPart:
        """The video as one MP4 file; raises `NotMade`, also during the upload."""
        if video.state is not UploadState.COMPLETE:
            raise NotMade("The film has not arrived yet.")
        return self._virtual(video, PLAY_FILE)

    def segment(self, video: Upload, stream: str, number: int) -> VirtualPart:
        """A segment of a stream, counted from 1; raises `NotMade`."""
        found = self._playlists.stream(video.id, stream)
        span = found.span(number)
        if span is None or number > self._available(video, found):
            raise NotMade("The stream has no segment of this number.")
        name = f"hls/{stream}/segments.virtual"
        return self._virtual(video, name, span, source_name=found.file)

    def initialization(self, video: Upload, stream: str) -> MadeFile:
        """The initialization segment of a stream."""
        self._playlists.stream(video.id, stream)
        return MadeFile(self._folder, video.id, f"hls/{stream}/init.mp4")

    def made(self, video: Upload, name: str) -> MadeFile:
        """An image, subtitles or other derived file; raises `NotMade` for any other name."""
        if not _MADE.fullmatch(name):
            raise NotMade("Nothing of this name is made of videos.")
        return MadeFile(self._folder, video.id, name)

    def _virtual(
        self, video: Upload, name: str, span: ByteRange | None = None, *, source_name: str = ""
    ) -> VirtualPart:
        """A virtual file, or a span of it, with the file that contains its bytes."""

        def open_source() -> RawIOBase:
            if source_name:
                return self._folder.open(video.id, source_name)[1]
            return self._source.open(video)

        try:
            made, stored = self._folder.fetch(video.id, name)
        except FileNotFoundError as error:
            raise NotMade("The film cannot be played yet.") from error
        file = StoredVirtualFile(stored)
        if span is not None and span.end > file.length:  # Indexed again since the list was read.
            file.close()
            raise NotMade("The film is being indexed anew.")
        return VirtualPart(made, file, span or ByteRange(0, file.length), open_source)

    @staticmethod
    def _available(video: Upload, stream: Stream) -> int:
        if video.state is UploadState.COMPLETE:
            return len(stream.ends)
        return stream.available(video.offset)


def _view(known: Playback, job: Job | None, made: frozenset[str]) -> PlaybackView:
    """`job` is the one that playing the video depends on."""
    facts = None if known.facts is None else Facts.from_json(known.facts)
    problem, progress = known.problem, None
    if job is not None:  # Has the reason for a delay, such as a full disk.
        problem = job.problem or problem
        progress = job.progress if job.state is JobState.RUNNING else None
    return PlaybackView(known.upload_id, known.state, facts, problem, made, progress)


# ---- playlists -----------------------------------------------------------------------------------

# The playlists of a video, from its stored manifest. Both are cached for all requests.


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
        picture, texts = manifest.picture, list(map(_text_alternative, subtitles))
        if picture is None:
            return master_playlist([_variant(stream, []) for stream in sounds[:1]], texts)
        variants = [_variant(picture, sounds)] if picture.is_played else []
        variants += [_variant_of(rendition, sounds) for rendition in formats]
        if not variants:
            raise NotMade("Browsers cannot play the film, and no other quality of it is offered.")
        alternatives = [_alternative(stream, is_default=stream is sounds[0]) for stream in sounds]
        return master_playlist(variants, alternatives + texts)

    def of_stream(self, video: Upload, name: str) -> str:
        """The media playlist of a stream; during an upload, of its available segments."""
        stored = self._stored(video.id)
        lines, longest = self._lines(stored, name, is_rung=False)
        stream = self._stream(stored, name)
        is_complete = video.state is UploadState.COMPLETE
        available = None if is_complete else stream.available(video.offset)
        return media_playlist(lines, longest, available=available)

    def of_renditions(self, upload_id: UploadId) -> str:
        """The media playlist of any rendition."""
        stored = self._stored(upload_id)
        picture = self._manifest(stored).picture
        if picture is None:
            raise NotMade("The film has no picture.")
        return media_playlist(*self._lines(stored, picture.name, is_rung=True))

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
            raise NotMade("The film has no stream of this name.")
        return found

    def manifest(self, upload_id: UploadId) -> Manifest:
        """The stored manifest of a video."""
        return self._manifest(self._stored(upload_id))

    def _stored(self, upload_id: UploadId) -> Made:
        found = self._folder.find(upload_id, MANIFEST)
        if found is None:
            raise NotMade("The film cannot be played in segments, at least not yet.")
        return found

    def _read(self, stored: Made) -> Manifest:
        """Reads a manifest; the new one, if it has just been replaced."""
        try:
            return Manifest.from_json(read_whole(self._folder, stored.upload_id, stored.name))
        except FileNotFoundError as error:
            raise NotMade("The film is being indexed again.") from error

    def _written_lines(
        self, stored: Made, name: str, *, is_rung: bool
    ) -> tuple[Sequence[str], float]:
        """A playlist's lines for each segment of a stream, and the longest duration.

        Cached: a video of two hours takes 1 ms, and 0.03 ms from the cache.
        """
        stream = self._stream(stored, name)
        durations = stream.rung_segments if is_rung else stream.durations
        return segment_lines(durations), max(durations, default=1.0)


def _variant(stream: Stream, sounds: Sequence[Stream]) -> Variant:
    """A video stream with its audio."""
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


def _variant_of(rendition: RenditionFormat, sounds: Sequence[Stream]) -> Variant:
    """A rendition, with the same audio."""
    return Variant(
        f"{rendition.quality}/index.m3u8",
        rendition.peak_rate + max((sound.peak_rate for sound in sounds), default=0),
        rendition.mean_rate + max((sound.mean_rate for sound in sounds), default=0),
        [rendition.codecs, *(sound.codecs for sound in sounds)],
        rendition.width,
        rendition.height,
        Fraction(rendition.frame_rate),
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
