"""A film is `ready` once nothing more is to be made of it unasked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from app.domain.jobs import ENDED, Job, JobFailed
from app.domain.playback import PlaybackState
from app.domain.upload import UploadId
from app.media.heartbeat import Heartbeat
from app.media.pictures import EARLY_POSTER
from app.media.rungs import RENDITION, SEGMENTS
from app.media.worker import Step
from app.records.jobs import JobRecords
from app.records.media import MediaRecords

_NOT_AWAITED = frozenset({SEGMENTS, RENDITION, EARLY_POSTER})


class Settling:
    """Notes it after the step that was the last one, whether it succeeded or failed for good.

    The steps of one film run in one lane after its index, so one of them is the last. Other
    qualities and what is made while it arrives do not count. `then` is called with the film.
    """

    def __init__(
        self,
        jobs: JobRecords,
        media: MediaRecords,
        *,
        clock: Callable[[], datetime],
        then: Callable[[UploadId], object] = lambda _: None,
    ) -> None:
        self._jobs = jobs
        self._media = media
        self._clock = clock
        self._then = then

    def after(self, step: Step) -> Step:
        """The step, and what is noted after it."""

        def run(job: Job, beat: Heartbeat) -> None:
            try:
                step(job, beat)
            except JobFailed as error:
                if error.is_final or job.is_last_attempt:
                    self._settle(job)
                raise
            self._settle(job)

        return run

    def _settle(self, job: Job) -> None:
        playback = self._media.get(job.upload_id)
        if playback is None or playback.state is not PlaybackState.PLAYABLE:
            return
        others = (
            other
            for other in self._jobs.of(job.upload_id)
            if other.state not in ENDED and other.step not in _NOT_AWAITED
        )
        if all((other.step, other.argument) == (job.step, job.argument) for other in others):
            self._media.move(job.upload_id, PlaybackState.READY, self._clock())
            self._then(job.upload_id)
