"""The renditions of a video and their media, for the web application.

The background worker encodes them; missing segments are queued when a player requests them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.core.errors import NoRoom, NotMade, NotMadeYet, RenditionFailed, RenditionsOff
from app.core.jobs import ENDED, Job, JobState, Lane
from app.core.lifecycle import UploadState
from app.core.playback import PlaybackProblem
from app.core.upload import Upload, UploadId
from app.db.jobs import JobRecords
from app.ingest.slots import without_slot
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.facts import Stream
from app.video.serve.ladder import Capability, RenditionFormat, ladder
from app.video.serve.library import MadeFile
from app.video.serve.playlists import Playlists

# ---- names ---------------------------------------------------------------------------------------

# File names and job arguments of renditions, shared by the web application and the worker.
#
# rungs/720/init.mp4, rungs/720/15.m4s    segments, from 1, encoded one by one on request
# rungs/720/left-out                      numbers of segments left out of the whole video
# renditions/720.mp4                      the whole video, with audio, for downloads


SEGMENTS = "segments"
"""The step that encodes a segment and a few after it; its argument is such as "720/15"."""

RENDITION = "rendition"
"""The step that encodes the whole video; its argument is the rendition, such as "720"."""

ASKED_SECONDS = 60
"""A segment that was not requested for this long is no longer encoded."""

ORDERED_PRIORITY, EAGER_PRIORITY = 50, 90
"""Priorities of `RENDITION`: ordered by a user, or queued by the server."""


def rendition_folder(quality: int) -> str:
    """The folder of a rendition, in the folder of its video."""
    return f"rungs/{quality}"


def initialization_file(quality: int) -> str:
    """The name of the initialization segment."""
    return f"{rendition_folder(quality)}/init.mp4"


def segment_file(quality: int, number: int) -> str:
    """The name of a segment, counted from 1."""
    return f"{rendition_folder(quality)}/{number}.m4s"


def left_out_file(quality: int) -> str:
    """The name of the list of segments that cannot be decoded: one number per line."""
    return f"{rendition_folder(quality)}/left-out"


def left_out(files: DerivedFiles, upload_id: UploadId, quality: int) -> frozenset[int]:
    """The segments that are left out of the whole video, counted from 1."""
    try:
        numbers = files.read(upload_id, left_out_file(quality))
    except FileNotFoundError:
        return frozenset()
    return frozenset(map(int, numbers.split()))


def rendition_file(quality: int) -> str:
    """The name of the whole video."""
    return f"renditions/{quality}.mp4"


def segments_argument(quality: int, number: int) -> str:
    """The argument of `SEGMENTS`."""
    return f"{quality}/{number}"


def asked_for(argument: str) -> tuple[int, int]:
    """Parses an argument of `SEGMENTS`: the rendition and the number of a segment."""
    quality, _, number = argument.partition("/")
    return int(quality), int(number)


def priority_at(now: datetime) -> int:
    """The priority of a request for segments: latest first, as a viewer who seeks has moved on.

    A repeated request raises it, so it also tells the time of the last request.
    """
    return -int(now.timestamp())


def is_stale(priority: int, now: datetime) -> bool:
    """Whether the last request for a segment was too long ago."""
    return now.timestamp() + priority > ASKED_SECONDS


# ---- segment queue -------------------------------------------------------------------------------

# Queues segments of renditions for the background worker, and waits until they are encoded.


MOST_QUEUED = 32
"""Queued jobs for segments; beyond that, the oldest requests are dropped."""

MOST_FAILED = 1000
"""Failed jobs for segments that are kept; beyond that, the oldest requests are dropped."""

FAILED_FOR = timedelta(minutes=10)
"""A failed segment is tried again after this time: a program may have been killed."""

READ_AHEAD_LAG = timedelta(seconds=20)
"""Prefetched segments come after requested ones, as if requested this much earlier."""

FILE_LOOK_SECONDS = 0.05
JOB_LOOK_SECONDS = 0.5
"""Poll intervals of a file, which takes 40 us per poll, and of the job that makes it."""

IsAwaited = Callable[[], bool]
"""Whether the client still waits for the response."""


@dataclass(frozen=True, slots=True)
class WaitTimeout:
    """How long a request waits for a segment, and how many requests of a process may wait.

    Further requests fail at once, as a waiting thread serves no other request. Players retry.
    """

    seconds: float = 8.0
    most_waiting: int = 8

    @classmethod
    def of_process(cls, threads: int) -> WaitTimeout:
        """A quarter of its threads may wait."""
        return cls(most_waiting=max(1, min(threads // 4, 8)))


@dataclass(frozen=True, slots=True)
class WantedSegment:
    """A segment of a rendition, counted from 1."""

    upload_id: UploadId
    quality: int
    number: int

    @property
    def argument(self) -> str:
        """The argument of the job that makes it."""
        return segments_argument(self.quality, self.number)


# ---- offers --------------------------------------------------------------------------------------


STEPS = (RENDITION, SEGMENTS)

READ_AHEAD = 2
"""Segments after the current one that should exist; the job makes a few more."""

MOST_TRIED = 20
"""Damaged segments at the start of a video; a video with more has no playable renditions."""


@dataclass(frozen=True, slots=True)
class RenditionView:
    """A rendition; `state` is `on_demand`, `making`, `ready` or `failed`.

    `problem` is the reason why it failed, or why it has not started yet.
    """

    quality: int
    state: str
    progress: float
    problem: PlaybackProblem | None = None


@dataclass(slots=True, kw_only=True)
class Renditions:
    """Methods with a `quality` raise `NotMade` if the video is not offered in it."""

    playlists: Playlists
    jobs: JobRecords
    files: DerivedFiles
    timeout: WaitTimeout
    capability: Callable[[], Capability | None]
    is_on: bool
    clock: Callable[[], datetime]
    _free: threading.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free = threading.Semaphore(self.timeout.most_waiting)

    def formats(self, video: Upload) -> list[RenditionFormat]:
        """The offered renditions of a video, highest first."""
        return self._offer(video)[1]

    def _offer(self, video: Upload) -> tuple[Stream | None, list[RenditionFormat]]:
        """The video track, and the renditions of it."""
        if not self.is_on or video.state is not UploadState.COMPLETE:
            return None, []
        try:
            picture = self.playlists.manifest(video.id).picture
        except NotMade:
            picture = None
        if picture is None:
            return None, []
        return picture, ladder(picture, self.capability())[::-1]

    def of(self, video: Upload) -> list[RenditionView]:
        """The state of each offered rendition."""
        formats = self.formats(video)
        if not formats:
            return []
        jobs = {job.argument: job for job in self.jobs.of(video.id, RENDITION)}
        qualities = [rendition.quality for rendition in formats]
        made = self.files.find_all(video.id, [*map(rendition_file, qualities)])
        return [
            self._view(
                video,
                quality,
                jobs.get(str(quality)),
                is_made=rendition_file(quality) in made,
            )
            for quality in qualities
        ]

    def _view(
        self, video: Upload, quality: int, job: Job | None, *, is_made: bool
    ) -> RenditionView:
        if is_made:
            gaps = None
            if count := len(left_out(self.files, video.id, quality)):
                parts = "A damaged part is" if count == 1 else f"{count} damaged parts are"
                detail = f"{parts} missing, as nothing could be decoded."
                gaps = PlaybackProblem("incomplete", detail)
            return RenditionView(quality, "ready", 1.0, gaps)
        if job is not None and job.state is JobState.FAILED:
            return RenditionView(quality, "failed", 0.0, job.problem)
        if job is not None and job.state not in ENDED:
            reason = job.problem if job.state is JobState.QUEUED else None
            return RenditionView(quality, "making", job.progress, reason)
        return RenditionView(quality, "on_demand", 0.0)

    def order(self, video: Upload, quality: int) -> RenditionView:
        """Queue the whole rendition unless it is ready; raises `RenditionsOff`.

        Failed segments may be tried again.
        """
        if not self.is_on:
            raise RenditionsOff("This server offers videos only as they were uploaded.")
        self._require_offered(video, quality)
        known = self.jobs.find(video.id, RENDITION, str(quality))
        is_made = self.files.find(video.id, rendition_file(quality)) is not None
        view = self._view(video, quality, known, is_made=is_made)
        if view.state == "ready":
            return view
        failed = [JobState.FAILED]
        self.jobs.drop(video.id, SEGMENTS, prefix=str(quality), states=failed)
        job = self.jobs.enqueue(
            video.id,
            RENDITION,
            str(quality),
            lane=Lane.BACKGROUND,
            priority=ORDERED_PRIORITY,
            now=self.clock(),
            renew=view.state != "making",  # A running job need not run again.
        )
        return self._view(video, quality, job, is_made=False)

    def remove(self, video: Upload, quality: int) -> None:
        """Stop encoding a rendition, and remove its files. Idempotent."""
        jobs = [self.jobs.drop(video.id, step, prefix=str(quality)) for step in STEPS]
        names = [rendition_file(quality), rendition_folder(quality)]
        if not any([*jobs, *(self.files.discard(video.id, name) for name in names)]):
            self._require_offered(video, quality)

    def file(self, video: Upload, quality: int) -> MadeFile:
        """The whole rendition, with audio; it exists if its state is `ready`."""
        self._note_watched(video, quality)
        return MadeFile(self.files, video.id, rendition_file(quality))

    def playlist(self, video: Upload, quality: int) -> str:
        """The media playlist: all segments, whether they are made or not."""
        self._require_offered(video, quality)
        return self.playlists.of_renditions(video.id)

    def initialization(self, video: Upload, quality: int, is_awaited: IsAwaited) -> MadeFile:
        """The initialization segment; raises like `segment`.

        It is made with the first segment that can be encoded: a later one if the start of the video
        is damaged.
        """
        picture = self._require_offered(video, quality)
        found = MadeFile(self.files, video.id, initialization_file(quality))
        last = min(len(picture.rung_segments), MOST_TRIED)
        for number in range(1, last + 1):
            if found.exists:
                break
            try:
                self._wait_for(found, WantedSegment(video.id, quality, number), is_awaited)
            except RenditionFailed:
                if number == last:
                    raise
        return found

    def segment(self, video: Upload, quality: int, number: int, is_awaited: IsAwaited) -> MadeFile:
        """A segment, counted from 1; waits until it is encoded if needed.

        Raises `NotMadeYet` if that takes too long, `RenditionFailed` if it cannot be encoded, and
        `NoRoom` if it waits for disk space.
        """
        count = len(self._require_offered(video, quality).rung_segments)
        if not 1 <= number <= count:
            raise NotMade("The stream has no segment of this number.")
        numbers = range(number, min(number + READ_AHEAD, count) + 1)
        names = [segment_file(quality, each) for each in numbers]
        made = self.files.find_all(video.id, names)
        found = MadeFile(self.files, video.id, names[0], made.get(names[0]))
        if names[0] not in made:
            self._wait_for(found, WantedSegment(video.id, quality, number), is_awaited)
        else:
            for each, name in zip(numbers, names, strict=True):
                if name not in made:
                    later = WantedSegment(video.id, quality, each)
                    self._queue(later, self.clock() - READ_AHEAD_LAG)
                    break
        self._note_watched(video, quality)
        return found

    def _note_watched(self, video: Upload, quality: int) -> None:
        """Record that a rendition is used; the least recently used are evicted first."""
        self.files.note_use(video.id, initialization_file(quality))

    def _require_offered(self, video: Upload, quality: int) -> Stream:
        """The video track; raises `NotMade` if it is not offered in this rendition."""
        picture, formats = self._offer(video)
        if picture is None or all(each.quality != quality for each in formats):
            raise NotMade("The video is not offered in this rendition.")
        return picture

    # ---- the queue: the latest request comes first, as a viewer who seeks has moved on ----

    def _wait_for(self, file: MadeFile, wanted: WantedSegment, is_awaited: IsAwaited) -> None:
        """Wait until `file`, which is made with the segment, exists.

        Raises `NotMadeYet` if that takes too long or too many requests are waiting,
        `RenditionFailed` if it cannot be encoded, and `NoRoom` if it waits for disk space.
        """
        if not self._free.acquire(blocking=False):
            raise NotMadeYet("Too many viewers are waiting for renditions at the moment.")
        try:
            self._queue(wanted, self.clock())
            now = time.monotonic()
            deadline, look_at = now + self.timeout.seconds, now
            with without_slot():
                while not file.exists:
                    now = time.monotonic()
                    if now >= deadline or not is_awaited():
                        raise NotMadeYet("This part of the video is still being encoded.")
                    if now >= look_at:
                        self._require_not_failed(wanted)
                        look_at = now + JOB_LOOK_SECONDS
                    time.sleep(FILE_LOOK_SECONDS)
        finally:
            self._free.release()

    def _queue(self, wanted: WantedSegment, asked_at: datetime) -> None:
        known = self._find(wanted)
        if known is not None and (known.state is JobState.RUNNING or self._has_failed(known)):
            return
        self.jobs.enqueue(
            wanted.upload_id,
            SEGMENTS,
            wanted.argument,
            lane=Lane.ON_DEMAND,
            priority=priority_at(asked_at),
            now=self.clock(),
            renew=True,
        )
        if known is None:
            self.jobs.drop_beyond(MOST_QUEUED, SEGMENTS, Lane.ON_DEMAND)
            self.jobs.drop_beyond(MOST_FAILED, SEGMENTS, Lane.ON_DEMAND, JobState.FAILED)

    def _require_not_failed(self, wanted: WantedSegment) -> None:
        job = self._find(wanted)
        if job is None or job.problem is None:
            return
        if self._has_failed(job):
            raise RenditionFailed(job.problem.detail)
        is_postponed = job.state is JobState.QUEUED and job.due_at > self.clock()
        if is_postponed and job.problem.code == NoRoom.code:
            raise NoRoom(job.problem.detail)

    def _has_failed(self, job: Job) -> bool:
        is_recent = self.clock() - job.updated_at < FAILED_FOR
        return job.state is JobState.FAILED and is_recent

    def _find(self, wanted: WantedSegment) -> Job | None:
        return self.jobs.find(wanted.upload_id, SEGMENTS, wanted.argument)
