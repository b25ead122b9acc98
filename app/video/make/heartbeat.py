"""Keeps the claims of running jobs, and tells their steps when one is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.core.errors import UploadError
from app.core.jobs import Job, JobCancelled
from app.db.jobs import JobRecords

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """The worker's times, as they suit a server; tests have shorter ones.

    A job is taken over when its worker has not renewed its claim for `lease`. Whether it was
    cancelled is a read, made every `look_seconds`, as is the check for changes. A renewal is a
    write, made at each third of the lease and with visible progress.
    `postponed` is the pause after a failure of the server, such as a full disk, which no attempt
    counts. A look at all videos, every `sweep_seconds`, takes 0.4 s of CPU for 100 000.
    """

    lease: timedelta = timedelta(seconds=15)
    look_seconds: float = 0.5
    progress_seconds: float = 1.0
    progress_step: float = 0.01
    sweep_seconds: float = 300.0
    first_retry: timedelta = timedelta(seconds=5)
    postponed: timedelta = timedelta(seconds=60)
    failed_seconds: float = 2.0


SERVER_PACE = Pace()


@dataclass(slots=True)
class Heartbeat:
    """What a step calls now and then with its progress, from 0 to 1.

    Raises `JobCancelled` once the job is lost. `stop` is set at that moment, for whoever waits for
    a program.
    """

    job: Job
    stop: threading.Event = field(default_factory=threading.Event)
    progress: float = 0.0

    def __call__(self, progress: float) -> None:
        """Costs nothing: a thread of its own writes to the database."""
        self.progress = min(max(progress, 0.0), 1.0)
        self.go_on()

    def go_on(self) -> None:
        """The same, without progress to report."""
        if self.stop.is_set():
            raise JobCancelled(str(self.job))


class _Claim:
    """A running job, as its keeper sees it."""

    def __init__(self, beat: Heartbeat) -> None:
        self.beat = beat
        self._renewed_at = time.monotonic()
        self._written = 0.0

    def is_due(self, pace: Pace) -> bool:
        """Whether to write."""
        age = time.monotonic() - self._renewed_at
        moved = self.beat.progress - self._written >= pace.progress_step
        return age >= pace.lease.total_seconds() / 3 or (moved and age >= pace.progress_seconds)

    def was_renewed(self, progress: float) -> None:
        """Note a write."""
        self._renewed_at, self._written = time.monotonic(), progress

    def has_ended(self, pace: Pace) -> bool:
        """Whether another worker may have the job by now."""
        return time.monotonic() - self._renewed_at >= pace.lease.total_seconds()


class LeaseKeeper:
    """Renews leases from a thread of its own: a step that runs ffmpeg for an hour keeps its job."""

    def __init__(self, jobs: JobRecords, *, clock: Callable[[], datetime], pace: Pace) -> None:
        self._jobs = jobs
        self._clock = clock
        self._pace = pace
        self._claims: dict[int, _Claim] = {}
        self._changing = threading.Lock()
        self._is_needed = threading.Event()
        self._is_stopping = False

    @contextmanager
    def keeping(self, job: Job) -> Iterator[Heartbeat]:
        """Keep the claim of `job` inside the block."""
        claim = _Claim(Heartbeat(job))
        with self._changing:
            self._claims[id(claim)] = claim
            if self._is_stopping:
                claim.beat.stop.set()
            self._is_needed.set()
        try:
            yield claim.beat
        finally:
            with self._changing:
                del self._claims[id(claim)]
                if not self._claims and not self._is_stopping:
                    self._is_needed.clear()

    def stop_all(self) -> None:
        """Have all steps stop, and those that begin later."""
        with self._changing:
            self._is_stopping = True
            self._is_needed.set()
            for claim in self._claims.values():
                claim.beat.stop.set()

    def run(self, stop: threading.Event) -> None:
        """Keep claims until `stop`; costs nothing while no job runs."""
        while not stop.is_set():
            self._is_needed.wait()
            with self._changing:
                claims = list(self._claims.values())
            for claim in claims:
                self._keep(claim)
            stop.wait(self._pace.look_seconds)

    def _keep(self, claim: _Claim) -> None:
        try:
            is_held = self._look(claim)
        except UploadError as error:  # A full disk, or a database that is locked.
            log.warning("a lease cannot be renewed: %s", error)
            is_held = not claim.has_ended(self._pace)
        if not is_held:
            claim.beat.stop.set()

    def _look(self, claim: _Claim) -> bool:
        if not claim.is_due(self._pace):
            return self._jobs.is_held(claim.beat.job)
        progress = claim.beat.progress
        is_held = self._jobs.heartbeat(claim.beat.job, progress, self._clock(), self._pace.lease)
        claim.was_renewed(progress)
        return is_held
