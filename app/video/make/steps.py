"""Shared by the steps of the background worker: tools, limits, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from io import RawIOBase

from app.core.jobs import Job, JobCancelled, JobFailed, JobYields, Lane
from app.core.playback import PlaybackProblem, PlaybackState
from app.core.upload import Upload, UploadId
from app.db.jobs import JobRecords
from app.records.uploads import UploadRecords
from app.video.index.boxes import LongIndex, NotIndexable, ReadAt
from app.video.index.movie import Movie
from app.video.index.samples import LONG_INDEX, MAX_ENTRIES, SHORT_INDEX
from app.video.make.ffmpeg import (
    PROBE_LIMITS,
    Ffmpeg,
    FfmpegFailed,
    FfmpegInterrupted,
    FfmpegMissing,
    FfmpegStopped,
)
from app.video.make.sandbox.process import ProgramLimits
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import Facts
from app.video.serve.ladder import Capability
from app.video.serve.rows import MediaRecords
from app.video.serve.source import MediaSource, ParsedMovies


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTools:
    """The records, the videos, their derived files, and the programs."""

    uploads: UploadRecords
    media: MediaRecords
    jobs: JobRecords
    source: MediaSource
    files: DerivedFiles
    ffmpeg: Ffmpeg
    capability: Callable[[], Capability | None]
    """Encoding speed for renditions; None if they are not offered."""
    clock: Callable[[], datetime]
    movies: ParsedMovies = field(default_factory=ParsedMovies)
    is_alone: bool = False
    """Whether this process runs a single step, with its own limits."""

    def read_movie(self, job: Job, file: RawIOBase) -> tuple[Movie, ReadAt]:
        """The movie in an open file, and a reader of the file.

        Raises `NotIndexable`, and `LongIndex` if this process must not read it for this job.
        """
        most = MAX_ENTRIES if self.is_alone else most_entries(job)
        return self.movies.read(file, most_entries=most)

    def describe(
        self,
        upload_id: UploadId,
        state: PlaybackState,
        facts: Facts | None = None,
        problem: PlaybackProblem | None = None,
    ) -> None:
        """Store the state, the metadata and the problem of a video; raises like `media.move`."""
        values = None if facts is None else facts.to_json()
        self.media.describe(upload_id, state, self.clock(), facts=values, problem=problem)

    def enqueue(self, upload_id: UploadId, step: str, lane: Lane, priority: int) -> None:
        """Queue a step, again if it has ended."""
        now = self.clock()
        self.jobs.enqueue(upload_id, step, lane=lane, priority=priority, now=now, renew=True)

    def has(self, upload_id: UploadId, name: str) -> bool:
        """Whether a derived file exists."""
        return self.files.find(upload_id, name) is not None

    @contextmanager
    def opened(self, upload_id: UploadId) -> Iterator[tuple[Upload, RawIOBase]]:
        """Yields a video and its open media file, which is closed at the end."""
        video = self.uploads.get(upload_id)
        with closing(self.source.open(video)) as source:
            yield video, source


# ---- limits --------------------------------------------------------------------------------------

# Limits of a step for one file, so that videos of other clients do not wait for it.
#
# 1. In the lane `quick`, a short index is read at once.
# 2. A longer index, and a file that only ffprobe can read, come after those, with priority `LATER`.
# 3. Work that takes more than 2 s of CPU time moves to the lane `long`. There, such an index is
#    read by a separate process; see `work.py`.


QUICK_CPU_SECONDS = 2
"""Limit of a program in the lane `quick`; ffprobe takes 0.1 s for most videos."""

LATER = 10
"""Priority, in the lane `quick`, of jobs that take longer than a short index."""


_QUICK_PROBE_LIMITS = replace(PROBE_LIMITS, cpu_seconds=QUICK_CPU_SECONDS)


def probe_limits(job: Job) -> ProgramLimits:
    """Limits of ffprobe for this job."""
    return _QUICK_PROBE_LIMITS if job.lane is Lane.QUICK else PROBE_LIMITS


def most_entries(job: Job) -> int:
    """Maximum index that a step may read for this job in the background worker."""
    return SHORT_INDEX if _is_first_look(job) else LONG_INDEX


def wait_for_short_ones(job: Job) -> None:
    """Raise `JobYields` unless the job has already yielded to short indexes."""
    if _is_first_look(job):
        raise JobYields(Lane.QUICK, LATER)


def leave_quick_lane(job: Job) -> None:
    """Raise `JobYields` if the job is in the lane `quick`: in `long`, programs have more time."""
    if job.lane is Lane.QUICK:
        raise JobYields(Lane.LONG)


def make_way(job: Job, error: LongIndex) -> None:
    """Raise `JobYields` until a job with such an index has reached the lane `long`."""
    if error.entries <= LONG_INDEX:
        wait_for_short_ones(job)
    if job.lane is not Lane.LONG:
        raise JobYields(Lane.LONG)


def _is_first_look(job: Job) -> bool:
    return job.lane is Lane.QUICK and job.priority < LATER


# ---- job errors ----------------------------------------------------------------------------------

# Converts errors of tools to errors of a job.


NO_FFMPEG = "no_ffmpeg"
"""Error code: ffmpeg is needed, but not installed."""

NO_RENDITIONS = "no_renditions"
"""Error code: only renditions of the video could be played, but they are not offered."""

INTERRUPTED = "interrupted"
"""Error code: killed, timed out or lacked disk space; a later attempt may succeed."""


@contextmanager
def as_job_errors(code: str, what: str, *, is_final: bool = False) -> Iterator[None]:
    """Raise errors of ffmpeg as errors of a job; `what` is a sentence without its full stop.

    With `is_final`, a failure is permanent, except interruptions: these have the code
    `INTERRUPTED` then.
    """
    try:
        yield
    except FfmpegStopped as error:
        raise JobCancelled(str(error)) from error
    except FfmpegMissing as error:
        raise JobFailed(NO_FFMPEG, f"{what}: {error}.", is_final=True) from error
    except FfmpegInterrupted as error:
        raise JobFailed(INTERRUPTED if is_final else code, f"{what}: {error}.") from error
    except FfmpegFailed as error:
        raise JobFailed(code, f"{what}: {error}.", is_final=is_final) from error


@contextmanager
def needing_index() -> Iterator[None]:
    """Raise `NotIndexable` as a permanent error of a job."""
    try:
        yield
    except NotIndexable as error:
        raise JobFailed(error.code, error.detail, is_final=True) from error
