"""What players get: playback states, derived files, separate subtitle files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from io import RawIOBase
from itertools import islice

from app.core.access import Scope
from app.core.errors import NotMade, UploadNotFound
from app.core.jobs import REMUX, Job, JobState
from app.core.lifecycle import UploadState
from app.core.playback import Made, Playback, PlaybackProblem, PlaybackState
from app.core.ranges import ByteRange
from app.core.upload import Upload, UploadId, UploadKind
from app.db.jobs import JobRecords
from app.records.uploads import UploadRecords
from app.video.index.languages import UNDETERMINED, language_of
from app.video.index.texts import cues_of, decoded, webvtt, within_limit
from app.video.index.virtual_file import Piece, StoredVirtualFile
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import PLAY_FILE, Facts
from app.video.serve.playlists import Playlists, Subtitles
from app.video.serve.rows import MediaRecords
from app.video.serve.source import REMUXED, MediaSource, reader

CONTENT_TYPES = {
    "jpg": "image/jpeg",
    "vtt": "text/vtt; charset=utf-8",
    "json": "application/json",
}
"""Content types of derived files that can be requested by name; `_MADE` matches their names."""

_MADE = re.compile(
    r"(?:poster|sprite)\.jpg|(?:thumbs|chapters|subs-[0-9]{1,2})\.vtt|waveform\.json"
)

LOOKS = 2
"""How often a virtual file and its source are looked up: they may be replaced in between."""


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A derived file of a video."""

    files: DerivedFiles
    upload_id: UploadId
    name: str
    found: Made | None = None
    """The file, if it was found just before."""

    @property
    def content_type(self) -> str:
        """The content type, from the file extension."""
        return CONTENT_TYPES[self.name.rpartition(".")[2]]

    @property
    def exists(self) -> bool:
        """Whether it has been made."""
        return self.files.find(self.upload_id, self.name) is not None

    def open(self) -> tuple[Made, RawIOBase]:
        """Opens the file, unbuffered; raises `NotMade`."""
        if self.found is not None:
            with suppress(FileNotFoundError):  # It has just been replaced.
                return self.found, self.files.open_version(self.found)
        try:
            return self.files.open(self.upload_id, self.name)
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

    @classmethod
    def of(cls, known: Playback, job: Job | None, made: frozenset[str]) -> PlaybackView:
        """The state of a known video; `job` is the one that playing it depends on."""
        facts = None if known.facts is None else Facts.from_json(known.facts)
        problem, progress = known.problem, None
        if job is not None:  # Has the reason for a delay, such as a full disk.
            problem = job.problem or problem
            progress = job.progress if job.state is JobState.RUNNING else None
        return cls(known.upload_id, known.state, facts, problem, made, progress)


def subtitles_of(view: PlaybackView) -> list[Subtitles]:
    """The subtitles made from the text tracks of a video, in file order."""
    tracks = view.facts.of_kind("text") if view.facts else []
    return [
        Subtitles(f"subs-{number}", track.language, track.title)
        for number, track in enumerate(tracks, start=1)
        if f"subs-{number}.vtt" in view.made
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLibrary:
    """Read access to videos for players. All files are made by the background worker."""

    uploads: UploadRecords
    media: MediaRecords
    jobs: JobRecords
    source: MediaSource
    files: DerivedFiles
    playlists: Playlists

    def playbacks(self, videos: Sequence[Upload]) -> list[PlaybackView]:
        """The playback state of each video, in the given order."""
        known = self.media.of([video.id for video in videos])
        probed = [each for each, found in known.items() if found.state is PlaybackState.PROBED]
        jobs = self.jobs.of_step(probed, REMUX) if probed else {}
        made = self.files.top_names(list(known))
        return [
            PlaybackView.of(found, jobs.get(video.id), made[video.id])
            if (found := known.get(video.id))
            else PlaybackView(video.id, PlaybackState.WAITING, None, None, frozenset())
            for video in videos
        ]

    def watched(self, scope: Scope, upload_id: UploadId) -> Upload:
        """A video, or an active upload that may be playable; raises like `get`."""
        upload = scope.require(self.uploads.get(upload_id))
        if upload.kind is UploadKind.PARTIAL:  # A partial upload is not a video.
            raise UploadNotFound("No video has this id.")
        return upload.require_present()

    def play_file(self, video: Upload) -> VirtualPart:
        """The video as one MP4 file; raises `NotMade`, also during the upload."""
        if video.state is not UploadState.COMPLETE:
            raise NotMade("The video has not been uploaded completely yet.")
        return self._virtual(video, PLAY_FILE)

    def segment(self, video: Upload, stream: str, number: int) -> VirtualPart:
        """A segment of a stream, counted from 1; raises `NotMade`."""
        found = self.playlists.stream(video.id, stream)
        span, available = found.span(number), len(found.ends)
        if video.state is not UploadState.COMPLETE:
            available = found.available(video.offset)
        if span is None or number > available:
            raise NotMade("The stream has no segment of this number.")
        name = f"hls/{stream}/segments.virtual"
        return self._virtual(video, name, span, source_name=found.file)

    def initialization(self, video: Upload, stream: str) -> MadeFile:
        """The initialization segment of a stream."""
        self.playlists.stream(video.id, stream)
        return MadeFile(self.files, video.id, f"hls/{stream}/init.mp4")

    def made(self, video: Upload, name: str) -> MadeFile:
        """An image, subtitles or other derived file; raises `NotMade` for any other name."""
        if not _MADE.fullmatch(name):
            raise NotMade("Nothing of this name is made of videos.")
        return MadeFile(self.files, video.id, name)

    def _virtual(
        self, video: Upload, name: str, span: ByteRange | None = None, *, source_name: str = ""
    ) -> VirtualPart:
        """A virtual file, or a span of it, with the file that contains its bytes."""
        for _ in range(LOOKS):
            found = self.files.find_all(video.id, [name, source_name or REMUXED])
            if not found.keys() >= {name, source_name or name}:
                raise NotMade("The video cannot be played yet.")
            with suppress(FileNotFoundError):  # It has just been replaced; so may its source.
                stored = self.files.fetch_version(found[name])
                break
        else:
            raise NotMade("The video is being indexed again.")

        def open_source() -> RawIOBase:
            try:
                if source_name:
                    return self.files.open_version(found[source_name])
                return self.source.open_found(video, found.get(REMUXED))
            except FileNotFoundError as error:
                raise NotMade("The video is being indexed again.") from error

        file = StoredVirtualFile(stored)
        if span is not None and span.end > file.length:  # Indexed again since the list was read.
            file.close()
            raise NotMade("The video is being indexed again.")
        return VirtualPart(found[name], file, span or ByteRange(0, file.length), open_source)


# ---- text files ----------------------------------------------------------------------------------

# Separate subtitle files of the same owner: `talk.srt`, `talk.en.vtt` and so on for `talk.mp4`.
#
# They are queried from the records on each request, so they follow every upload, rename and
# deletion, and no stale state is kept.


ENDINGS = (".srt", ".vtt")

MOST_FILES = 20
"""Subtitle files of one video; others are not shown."""

MOST_NAMES = 500
"""File names checked for one video. Not all match: `final` in `talk.final.srt` is no language."""

MOST_BYTES = 1 << 20
"""Read of one file; the rest is left out. Two hours of speech are 0.1 MB, and take 60 ms."""


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Finds and reads separate subtitle files."""

    uploads: UploadRecords
    source: MediaSource

    def of(self, video: Upload) -> list[Subtitles]:
        """The subtitle files of a video, matched by name; each is called `subs-` and its id."""
        stem, ending = _split(video.filename)
        if ending.lower() in ENDINGS:
            return []
        found = self.uploads.beside(video.owner, stem, ENDINGS, limit=MOST_NAMES)
        languages = ((text.id, language_beside(stem, text.filename)) for text in found)
        texts = (Subtitles(f"subs-{each}", language) for each, language in languages if language)
        return list(islice(texts, MOST_FILES))

    def as_webvtt(self, video: Upload, text_id: UploadId) -> str:
        """A subtitle file as WebVTT; raises `NotMade` if it does not belong to the video."""
        if f"subs-{text_id}" not in {text.name for text in self.of(video)}:
            raise NotMade("The video has no such subtitles.")
        with closing(self.source.open(self.uploads.get(text_id))) as file:
            text = decoded(reader(file)(0, MOST_BYTES))
        return webvtt(within_limit(cues_of(text)))


def language_beside(stem: str, filename: str) -> str | None:
    """The language of a subtitle file for a video named `stem`; None if the name does not match."""
    own_stem, ending = _split(filename)
    if ending.lower() not in ENDINGS:
        return None
    if _folded(own_stem) == _folded(stem):
        return UNDETERMINED
    own_stem, tag = _split(own_stem)
    return language_of(tag.removeprefix(".")) if _folded(own_stem) == _folded(stem) else None


def _split(filename: str) -> tuple[str, str]:
    """Splits a name, with its folders, at its last dot; the ending includes the dot."""
    stem, dot, ending = filename.rpartition(".")
    return (stem, dot + ending) if dot else (filename, "")


def _folded(name: str) -> str:
    """Case-folded and in normal form, as systems write accents differently."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
