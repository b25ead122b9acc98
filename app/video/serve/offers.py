"""What the web asks about other qualities of a film: which there are, and their media.

The media worker makes them; segments that are missing are queued when a player asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from app.core.errors import NotMade, RenditionFailed, RenditionsOff
from app.core.jobs import ENDED, Job, JobState, Lane
from app.core.lifecycle import UploadState
from app.core.playback import Problem
from app.core.upload import Upload
from app.db.jobs import JobRecords
from app.video.serve.capability import Capability
from app.video.serve.folder import MadeFiles
from app.video.serve.ladder import Rung, ladder
from app.video.serve.library import MadeFile
from app.video.serve.manifest import Stream
from app.video.serve.playlists import Playlists
from app.video.serve.rungs import (
    ORDERED_PRIORITY,
    RENDITION,
    SEGMENTS,
    initialization_file,
    left_out,
    rendition_file,
    rung_folder,
    segment_file,
)
from app.video.serve.segment_queue import IsAwaited, SegmentQueue, WantedSegment

STEPS = (RENDITION, SEGMENTS)

READ_AHEAD = 2
"""Segments after one that is watched which should be there; the job makes a few more."""

MOST_TRIED = 20
"""Damaged segments at the beginning of a film; one with more does not play in other qualities."""


@dataclass(frozen=True, slots=True)
class RenditionView:
    """One other quality; `state` is `on_demand`, `making`, `ready` or `failed`.

    `problem` says why it has failed, or why it is not being made yet.
    """

    quality: int
    state: str
    progress: float
    problem: Problem | None = None


class Renditions:
    """Methods that take a quality raise `NotMade` if the film is not offered in it."""

    def __init__(  # noqa: PLR0913 - called by the composition root alone, with names
        self,
        playlists: Playlists,
        jobs: JobRecords,
        folder: MadeFiles,
        *,
        queue: SegmentQueue,
        capability: Callable[[], Capability | None],
        is_on: bool,
        clock: Callable[[], datetime],
    ) -> None:
        self._playlists = playlists
        self._jobs = jobs
        self._folder = folder
        self._queue = queue
        self._capability = capability
        self._is_on = is_on
        self._clock = clock

    def rungs(self, video: Upload) -> list[Rung]:
        """The qualities that the film is offered in besides its own, the best first."""
        if not self._is_on or video.state is not UploadState.COMPLETE:
            return []
        try:
            picture = self._picture(video)
        except NotMade:
            return []
        return ladder(picture, self._capability())[::-1]

    def of(self, video: Upload) -> list[RenditionView]:
        """How far each of them is."""
        rungs = self.rungs(video)
        jobs = {job.argument: job for job in self._jobs.of(video.id, RENDITION)} if rungs else {}
        return [self._view(video, rung.quality, jobs.get(str(rung.quality))) for rung in rungs]

    def _view(self, video: Upload, quality: int, job: Job | None) -> RenditionView:
        if self._folder.find(video.id, rendition_file(quality)) is not None:
            return RenditionView(quality, "ready", 1.0, self._gaps(video, quality))
        if job is not None and job.state is JobState.FAILED:
            return RenditionView(quality, "failed", 0.0, job.problem)
        if job is not None and job.state not in ENDED:
            reason = job.problem if job.state is JobState.QUEUED else None
            return RenditionView(quality, "making", job.progress, reason)
        return RenditionView(quality, "on_demand", 0.0)

    def _gaps(self, video: Upload, quality: int) -> Problem | None:
        count = len(left_out(self._folder, video.id, quality))
        if not count:
            return None
        parts = "A damaged part is" if count == 1 else f"{count} damaged parts are"
        return Problem("incomplete", f"{parts} missing, as nothing could be decoded.")

    def order(self, video: Upload, quality: int) -> RenditionView:
        """Have the whole film made in that quality, unless it is; raises `RenditionsOff`.

        Segments that have failed may be tried again then.
        """
        if not self._is_on:
            raise RenditionsOff("This server offers films only as they were uploaded.")
        self._require_offered(video, quality)
        known = self._jobs.find(video.id, RENDITION, str(quality))
        view = self._view(video, quality, known)
        if view.state == "ready":
            return view
        failed = [JobState.FAILED]
        self._jobs.drop(video.id, SEGMENTS, prefix=str(quality), states=failed)
        job = self._jobs.enqueue(
            video.id,
            RENDITION,
            str(quality),
            lane=Lane.BACKGROUND,
            priority=ORDERED_PRIORITY,
            now=self._clock(),
            renew=view.state != "making",  # One that runs need not run once more.
        )
        return self._view(video, quality, job)

    def remove(self, video: Upload, quality: int) -> None:
        """Stop making the film in that quality, and remove what was made of it. Repeatable."""
        jobs = [self._jobs.drop(video.id, step, prefix=str(quality)) for step in STEPS]
        names = [rendition_file(quality), rung_folder(quality)]
        if not any([*jobs, *(self._folder.discard(video.id, name) for name in names)]):
            self._require_offered(video, quality)

    def file(self, video: Upload, quality: int) -> MadeFile:
        """The whole film in that quality, with its sound; it is there if it is `ready`."""
        self._note_watched(video, quality)
        return MadeFile(self._folder, video.id, rendition_file(quality))

    def playlist(self, video: Upload, quality: int) -> str:
        """The segments of the picture, whether they are made or not."""
        self._require_offered(video, quality)
        return self._playlists.of_rungs(video.id)

    def initialization(self, video: Upload, quality: int, is_awaited: IsAwaited) -> MadeFile:
        """What comes before the first segment; raises as `segment` does.

        It is made with whichever segment is made first: where the film's beginning is damaged,
        one after it.
        """
        self._require_offered(video, quality)
        found = MadeFile(self._folder, video.id, initialization_file(quality))
        last = min(len(self._picture(video).rung_segments), MOST_TRIED)
        for number in range(1, last + 1):
            if found.exists:
                break
            try:
                self._queue.wait_for(found, WantedSegment(video.id, quality, number), is_awaited)
            except RenditionFailed:
                if number == last:
                    raise
        return found

    def segment(self, video: Upload, quality: int, number: int, is_awaited: IsAwaited) -> MadeFile:
        """A segment of the picture, counted from 1, waiting for it if it has to be made.

        Raises `NotMadeYet` if that takes too long, `RenditionFailed` if it cannot be made, and
        `NoRoom` if it waits for room on the disk.
        """
        self._require_offered(video, quality)
        count = len(self._picture(video).rung_segments)
        if not 1 <= number <= count:
            raise NotMade("The stream has no segment of this number.")
        wanted = WantedSegment(video.id, quality, number)
        found = self._file(wanted)
        if found.exists:
            self._read_ahead(wanted, count)
        else:
            self._queue.wait_for(found, wanted, is_awaited)
        self._note_watched(video, quality)
        return found

    def _read_ahead(self, watched: WantedSegment, count: int) -> None:
        after = range(watched.number + 1, min(watched.number + READ_AHEAD, count) + 1)
        for number in after:
            wanted = replace(watched, number=number)
            if not self._file(wanted).exists:
                self._queue.read_ahead(wanted)
                return

    def _note_watched(self, video: Upload, quality: int) -> None:
        """Record that a quality is being watched; the least recently watched are removed first."""
        self._folder.note_use(video.id, initialization_file(quality))

    def _file(self, wanted: WantedSegment) -> MadeFile:
        name = segment_file(wanted.quality, wanted.number)
        return MadeFile(self._folder, wanted.upload_id, name)

    def _picture(self, video: Upload) -> Stream:
        picture = self._playlists.manifest(video.id).picture
        if picture is None:
            raise NotMade("The film has no picture.")
        return picture

    def _require_offered(self, video: Upload, quality: int) -> None:
        if all(rung.quality != quality for rung in self.rungs(video)):
            raise NotMade("The film is not offered in this quality.")
