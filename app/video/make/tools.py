"""What the steps of the media worker work with, as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from io import RawIOBase

from app.core.jobs import Job
from app.core.upload import Upload, UploadId
from app.db.jobs import JobRecords
from app.records.uploads import UploadRecords
from app.video.index.boxes import ReadAt
from app.video.index.entries import MAX_ENTRIES
from app.video.index.movie import Movie
from app.video.make.ffmpeg.program import Ffmpeg
from app.video.make.limits import most_entries
from app.video.serve.capability import Capability
from app.video.serve.folder import MediaFolder
from app.video.serve.parsed_movies import ParsedMovies
from app.video.serve.rows import MediaRecords
from app.video.serve.source import MediaSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTools:
    """The records, the films, the folder of what is made from them, and the programs."""

    uploads: UploadRecords
    media: MediaRecords
    jobs: JobRecords
    source: MediaSource
    folder: MediaFolder
    ffmpeg: Ffmpeg
    capability: Callable[[], Capability | None]
    """How fast other qualities can be made; None if they are not offered."""
    clock: Callable[[], datetime]
    movies: ParsedMovies = field(default_factory=ParsedMovies)
    is_alone: bool = False
    """Whether this process runs a single step, and has limits of its own."""

    def read_movie(self, job: Job, file: RawIOBase) -> tuple[Movie, ReadAt]:
        """The movie in an open file, and what reads it.

        Raises `NotIndexable`, and `LongIndex` if it must not be read for this job here.
        """
        most = MAX_ENTRIES if self.is_alone else most_entries(job)
        return self.movies.read(file, most_entries=most)

    @contextmanager
    def opened(self, upload_id: UploadId) -> Iterator[tuple[Upload, RawIOBase]]:
        """A video and the file that its index is about, which is closed at the end."""
        video = self.uploads.get(upload_id)
        with closing(self.source.open(video)) as source:
            yield video, source
