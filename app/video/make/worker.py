"""The media worker: claims jobs, runs their steps, renews their leases. Knows no specific step."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.core.errors import UploadError, UploadGone, UploadNotFound
from app.core.jobs import INDEX, Job, JobCancelled, JobFailed, JobYields, Lane
from app.core.playback import PlaybackProblem
from app.db.jobs import JobRecords
from app.db.waking import WakeupSocket, after_changes
from app.video.make.steps import Heartbeat
from app.video.make.sweep import BATCH, MediaSweep

log = logging.getLogger(__name__)


Step = Callable[[Job, Heartbeat], None]
"""Does one job. Raises `JobFailed` if that is impossible, and lets `JobCancelled` propagate.

It may run again after its end, or concurrently with a run that has lost its lease: it makes files
in a scratch folder and publishes them by renaming."""

Listener = Callable[[str, str, float], None]
"""Called after each attempt with the step, one of `OUTCOMES` and the seconds."""

OUTCOMES = ("done", "failed", "retried", "postponed", "cancelled")

CRASHED = "The server made a mistake with this file ({}); its log has the details."

QUIET_LOOKS = 4
"""Without commits, polls are this many times rarer; jobs also become due with time."""

SHORTEST_PAUSE = 0.05
"""Minimum seconds between two batches of writes: uploads wait for the same lock."""


@dataclass(frozen=True, slots=True)
class HeartbeatPace:
    """Intervals of the worker; the defaults are for servers, tests use shorter ones.

    Another worker takes over a job if its lease has not been renewed for `lease`. The worker polls
    for cancellation and for changes every `look_seconds`: a read. It renews the lease after each
    third of its time, and on visible progress: a write.
    `postponed` is the pause after a server error, such as a full disk, which does not count as an
    attempt. A sweep of all videos, every `sweep_seconds`, takes 0.4 s of CPU for 100 000 videos.
    """

    lease: timedelta = timedelta(seconds=15)
    look_seconds: float = 0.5
    progress_seconds: float = 1.0
    progress_step: float = 0.01
    sweep_seconds: float = 300.0
    first_retry: timedelta = timedelta(seconds=5)
    postponed: timedelta = timedelta(seconds=60)
    failed_seconds: float = 2.0


SERVER_PACE = HeartbeatPace()


@dataclass(kw_only=True)
class MediaWorker:
    """One thread per lane, one that looks for work, one for active uploads, one for leases.

    The thread that looks for work does not parse files of clients: all lanes wait for it.
    `name` is unique to this process, and identifies it in leases. Without the step `index`, no new
    videos are planned.
    """

    jobs: JobRecords
    steps: Mapping[str, Step]
    sweep: MediaSweep
    look_at_arrivals: Callable[[], bool]
    make_room: Callable[[], object] = lambda: None
    wakeup: WakeupSocket
    name: str
    clock: Callable[[], datetime]
    pace: HeartbeatPace = SERVER_PACE
    tell: Listener = lambda _step, _outcome, _seconds: None

    def __post_init__(self) -> None:
        self._keeper = LeaseKeeper(self.jobs, self.clock, self.pace)
        self._sweep_at = 0.0
        self._stop = threading.Event()
        self._has_work = {lane: threading.Event() for lane in Lane}
        self._has_changed = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads; returns at once."""
        self.wakeup.open()
        self._begin("look", self._look_for_work)
        self._begin("arrivals", self._look_at_changed_arrivals)
        self._begin("leases", lambda: self._keeper.run(self._stop))
        for lane in Lane:
            self._begin(lane, lambda lane=lane: self._work(lane))  # type: ignore[misc]

    def stop(self, seconds: float) -> None:
        """Stop within about this time. Requeues running jobs; their attempts do not count."""
        deadline = time.monotonic() + seconds
        self._stop.set()
        self._keeper.stop_all()
        self.wakeup.notify()
        for has_work in (*self._has_work.values(), self._has_changed):
            has_work.set()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with suppress(UploadError):  # Otherwise their leases expire.
            self.jobs.release(self.name, self.clock())
        if not self._threads[0].is_alive():
            self.wakeup.close()

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        # A daemon thread: a step that does not stop in time ends with the process.
        thread = threading.Thread(target=self._persist, args=(work,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _persist(self, work: Callable[[], None]) -> None:
        """Run `work` until it returns; a locked database or a full disk only delays it."""
        while not self._stop.is_set():
            try:
                return work()
            except Exception as error:
                is_known = isinstance(error, UploadError)
                log.error("media jobs: %s", error, exc_info=None if is_known else error)
                self._stop.wait(self.pace.failed_seconds)
        return None

    # ---- the thread that looks ----

    def _look_for_work(self) -> None:
        self.sweep.remove_strays()
        self.sweep.plan_unmade()
        self._sweep_at = 0.0
        pause = self.pace.look_seconds
        change = self.jobs.change_mark()

        def mark() -> object:
            return change(), self.wakeup.count

        look = after_changes(self._look_once, mark, longest_seconds=QUIET_LOOKS * pause)
        while not self._stop.is_set():
            most = look() or 0
            self.wakeup.wait(0.0 if most >= BATCH else pause)

    def _look_once(self) -> int:
        """Run all sweeps, and pause in proportion to their time; returns like `_look`."""
        self._has_changed.set()
        began = time.monotonic()
        most = self._look(is_recent=True)
        if time.monotonic() >= self._sweep_at:
            self.sweep.remove_abandoned()
            self.make_room()
            count = self._look(is_recent=False)
            self._sweep_at = 0.0 if count >= BATCH else time.monotonic() + self.pace.sweep_seconds
            most = max(most, count)
        took = time.monotonic() - began
        for lane in self.jobs.lanes_due(self.clock()):
            self._has_work[lane].set()
        if most:
            self.wakeup.set_events()
            self._stop.wait(max(took, SHORTEST_PAUSE))  # Not cut short by a wake-up.
        return most

    def _look(self, *, is_recent: bool) -> int:
        """Run the sweeps; returns their highest count: with `BATCH` there may be more."""
        counts = [
            self.sweep.forget(is_recent=is_recent),
            self.sweep.conclude(is_recent=is_recent),
        ]
        if INDEX in self.steps:
            counts.append(self.sweep.plan(is_recent=is_recent))
        if not is_recent:
            counts.append(self.sweep.settle())
        return max(counts)

    # ---- the thread of active uploads ----

    def _look_at_changed_arrivals(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), Lane.QUICK.niceness)
        while not self._stop.is_set():
            self._has_changed.clear()
            if not self.look_at_arrivals():
                self._has_changed.wait()

    # ---- the thread of a lane ----

    def _work(self, lane: Lane) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lane.niceness)
        while not self._stop.is_set():
            self._has_work[lane].clear()  # Before the claim, to catch jobs queued after it.
            job = self.jobs.claim(lane, self.name, self.clock(), self.pace.lease, self.steps)
            if job is None:
                self._has_work[lane].wait()
                continue
            began = time.monotonic()
            with self._keeper.keeping(job) as beat:
                outcome = self._run_step(job, beat)
            seconds = time.monotonic() - began
            self.tell(job.kind, outcome, seconds)
            log.info("%s: %s in %.2f s", job, outcome, seconds, extra={"upload_id": job.upload_id})
            if outcome == "cancelled":
                self.sweep.remove_if_gone(job.upload_id)
            if self.sweep.settle(job.upload_id):
                self.wakeup.set_events()  # For the event `video.ready`.

    def _run_step(self, job: Job, beat: Heartbeat) -> str:
        """Run the step and record its outcome; returns one of `OUTCOMES`."""
        try:
            self.steps[job.kind](job, beat)
        except JobCancelled:
            return "postponed" if self._stop.is_set() else "cancelled"
        except JobFailed as error:
            return self._failed(job, error.problem, is_final=error.is_final)
        except (UploadGone, UploadNotFound) as error:
            return self._failed(job, PlaybackProblem(error.code, str(error)), is_final=True)
        except (JobYields, UploadError) as error:
            return self._postponed(job, error)
        except Exception as error:
            log.exception("%s crashed", job, extra={"upload_id": job.upload_id})
            return self._failed(
                job,
                PlaybackProblem("internal_error", CRASHED.format(type(error).__name__)),
                is_final=False,
            )
        is_held = self._record(lambda: self.jobs.finish(job, self.clock()))
        return "done" if is_held else "cancelled"

    def _failed(self, job: Job, problem: PlaybackProblem, *, is_final: bool) -> str:
        after = None if is_final else job.retry_after(self.pace.first_retry)
        is_held = self._record(
            lambda: self.jobs.fail(job, problem, self.clock(), retry_after=after)
        )
        if not is_held:
            return "cancelled"
        log.warning("%s failed: %s", job, problem.detail, extra={"upload_id": job.upload_id})
        return "failed" if is_final or job.is_last_attempt else "retried"

    def _postponed(self, job: Job, reason: JobYields | UploadError) -> str:
        problem, pause, lane, priority = None, timedelta(), None, None
        if isinstance(reason, JobYields):
            lane, priority = reason.lane, reason.priority
        else:
            problem, pause = PlaybackProblem(reason.code, str(reason)), self.pace.postponed
            extra = {"upload_id": job.upload_id}
            log.warning("%s must wait: %s", job, problem.detail, extra=extra)
        is_held = self._record(
            lambda: self.jobs.postpone(
                job, problem, self.clock(), pause, lane=lane, priority=priority
            )
        )
        return "postponed" if is_held else "cancelled"

    def _record(self, write: Callable[[], bool]) -> bool:
        """Retry a write until it succeeds: a full disk must not cost finished work."""
        while True:
            try:
                return write()
            except UploadError as error:
                log.error("the end of a job cannot be recorded: %s", error)
                if self._stop.wait(self.pace.failed_seconds):
                    return False


# ---- leases --------------------------------------------------------------------------------------

# Renews the leases of running jobs, and stops their steps if a lease is lost.


@dataclass(slots=True)
class _Claim:
    """The lease of a running job."""

    beat: Heartbeat
    renewed_at: float = field(default_factory=time.monotonic)
    written: float = 0.0
    """The progress that was last written."""


@dataclass
class LeaseKeeper:
    """Renews leases in a separate thread: a step that runs ffmpeg for an hour keeps its job."""

    jobs: JobRecords
    clock: Callable[[], datetime]
    pace: HeartbeatPace

    def __post_init__(self) -> None:
        self._claims: dict[int, _Claim] = {}
        self._changing = threading.Lock()
        self._is_needed = threading.Event()
        self._is_stopping = False

    @contextmanager
    def keeping(self, job: Job) -> Iterator[Heartbeat]:
        """Renew the lease of `job` inside the block."""
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
        """Stop all steps, including steps that begin later."""
        with self._changing:
            self._is_stopping = True
            self._is_needed.set()
            for claim in self._claims.values():
                claim.beat.stop.set()

    def run(self, stop: threading.Event) -> None:
        """Renew leases until `stop`; costs nothing while no job runs."""
        while not stop.is_set():
            self._is_needed.wait()
            with self._changing:
                claims = list(self._claims.values())
            for claim in claims:
                try:
                    is_held = self._look(claim)
                except UploadError as error:  # A full disk, or a locked database.
                    log.warning("a lease cannot be renewed: %s", error)
                    age = time.monotonic() - claim.renewed_at
                    is_held = age < self.pace.lease.total_seconds()
                if not is_held:
                    claim.beat.stop.set()
            stop.wait(self.pace.look_seconds)

    def _look(self, claim: _Claim) -> bool:
        """Renew a lease if it is due; returns whether it is still held."""
        pace, job, progress = self.pace, claim.beat.job, claim.beat.progress
        age = time.monotonic() - claim.renewed_at
        has_moved = progress - claim.written >= pace.progress_step
        if age < pace.lease.total_seconds() / 3 and not (
            has_moved and age >= pace.progress_seconds
        ):
            return self.jobs.is_held(job)
        is_held = self.jobs.heartbeat(job, progress, self.clock(), pace.lease)
        claim.renewed_at, claim.written = time.monotonic(), progress
        return is_held
