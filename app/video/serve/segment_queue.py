"""Queues segments of other qualities for the media worker, and waits until they are made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.core.errors import NoRoom, NotMadeYet, RenditionFailed
from app.core.jobs import Job, JobState, Lane
from app.core.upload import UploadId
from app.db.jobs import JobRecords
from app.ingest.slots import without_slot
from app.video.serve.library import MadeFile
from app.video.serve.rungs import SEGMENTS, priority_at, segments_argument

MOST_QUEUED = 32
"""Jobs for segments that wait; beyond that, those that were asked for first are forgotten."""

MOST_FAILED = 1000
"""Jobs for segments that are remembered as failed; of more, those asked for first are forgotten."""

FAILED_FOR = timedelta(minutes=10)
"""How long a segment that failed is not tried again: a program may have been killed that time."""

READ_AHEAD_LAG = timedelta(seconds=20)
"""What is read ahead comes after what somebody waits for, as if it had been asked for earlier."""

FILE_LOOK_SECONDS = 0.05
JOB_LOOK_SECONDS = 0.5
"""Pauses between two looks at a file, which take 10 us, and at the job that makes it."""

IsAwaited = Callable[[], bool]
"""Whether the client still waits for its answer."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request waits for a segment, and how many requests of a process do.

    Others are told to come back, as a thread that waits serves nobody else. Players retry.
    """

    seconds: float = 8.0
    most_waiting: int = 8

    @classmethod
    def of_process(cls, threads: int) -> Patience:
        """A quarter of its threads may wait."""
        return cls(most_waiting=max(1, min(threads // 4, 8)))


@dataclass(frozen=True, slots=True)
class WantedSegment:
    """A segment of another quality, counted from 1."""

    upload_id: UploadId
    quality: int
    number: int

    @property
    def argument(self) -> str:
        """Of the job that makes it."""
        return segments_argument(self.quality, self.number)


class SegmentQueue:
    """The latest request comes first: who seeks has left where he was."""

    def __init__(
        self, jobs: JobRecords, *, patience: Patience, clock: Callable[[], datetime]
    ) -> None:
        self._jobs = jobs
        self._patience = patience
        self._clock = clock
        self._free = threading.Semaphore(patience.most_waiting)

    def read_ahead(self, wanted: WantedSegment) -> None:
        """Have a segment made that somebody will want soon."""
        self._queue(wanted, self._clock() - READ_AHEAD_LAG)

    def wait_for(self, file: MadeFile, wanted: WantedSegment, is_awaited: IsAwaited) -> None:
        """Return once `file`, which is made with the segment, is there.

        Raises `NotMadeYet` if that takes too long, or if too many requests wait already,
        `RenditionFailed` if it cannot be made, and `NoRoom` if it waits for room on the disk.
        """
        if not self._free.acquire(blocking=False):
            raise NotMadeYet("Too many viewers wait for other qualities at the moment.")
        try:
            self._queue(wanted, self._clock())
            with without_slot():
                self._wait_for(file, wanted, is_awaited)
        finally:
            self._free.release()

    def _queue(self, wanted: WantedSegment, asked_at: datetime) -> None:
        known = self._find(wanted)
        if known is not None and (known.state is JobState.RUNNING or self._has_failed(known)):
            return
        self._jobs.enqueue(
            wanted.upload_id,
            SEGMENTS,
            wanted.argument,
            lane=Lane.ON_DEMAND,
            priority=priority_at(asked_at),
            now=self._clock(),
            renew=True,
        )
        if known is None:
            self._jobs.drop_beyond(MOST_QUEUED, SEGMENTS, Lane.ON_DEMAND)
            self._jobs.drop_beyond(MOST_FAILED, SEGMENTS, Lane.ON_DEMAND, JobState.FAILED)

    def _wait_for(self, file: MadeFile, wanted: WantedSegment, is_awaited: IsAwaited) -> None:
        now = time.monotonic()
        deadline, look_at = now + self._patience.seconds, now
        while not file.exists:
            now = time.monotonic()
            if now >= deadline or not is_awaited():
                raise NotMadeYet("This part of the film is still being made.")
            if now >= look_at:
                self._require_hope(wanted)
                look_at = now + JOB_LOOK_SECONDS
            time.sleep(FILE_LOOK_SECONDS)

    def _require_hope(self, wanted: WantedSegment) -> None:
        job = self._find(wanted)
        if job is None or job.problem is None:
            return
        if self._has_failed(job):
            raise RenditionFailed(job.problem.detail)
        is_postponed = job.state is JobState.QUEUED and job.due_at > self._clock()
        if is_postponed and job.problem.code == NoRoom.code:
            raise NoRoom(job.problem.detail)

    def _has_failed(self, job: Job) -> bool:
        is_recent = self._clock() - job.updated_at < FAILED_FOR
        return job.state is JobState.FAILED and is_recent

    def _find(self, wanted: WantedSegment) -> Job | None:
        return self._jobs.find(wanted.upload_id, SEGMENTS, wanted.argument)
