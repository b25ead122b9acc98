"""Runs the jobs of this process: claims them, renews their leases, records their outcomes.

Knows no specific kind. Work is found by polling once a second, or at once after a wake-up.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial

from app.core.errors import UploadError, UploadGone, UploadNotFound
from app.core.jobs import Heartbeat, Job, JobCancelled, JobFailed, JobYields, Lane, Step
from app.core.playback import PlaybackProblem
from app.db.jobs import BATCH, JobRecords
from app.db.waking import WakeupSocket, after_changes

log = logging.getLogger(__name__)

CRASHED = "The server made a mistake with this file ({}); its log has the details."

QUIET_POLLS = 2
"""Without commits, polls are this many times rarer; jobs also become due with time."""

SHORTEST_PAUSE = 0.05
"""Minimum seconds between two batches of writes: uploads wait for the same lock."""


@dataclass(frozen=True, slots=True)
class WorkerPace:
    """Intervals of the worker; the defaults are for servers, tests use shorter ones.

    Another worker takes over a job if its lease has not been renewed for `lease`. The worker checks
    for cancellation every `check_seconds`: a read. It renews the lease after each third of its
    time, and on visible progress: a write. `postponed` is the pause after a server error, such as a
    full disk, which does not count as an attempt.
    """

    poll_seconds: float = 1.0
    lease: timedelta = timedelta(seconds=15)
    check_seconds: float = 0.5
    progress_seconds: float = 1.0
    progress_step: float = 0.01
    first_retry: timedelta = timedelta(seconds=5)
    postponed: timedelta = timedelta(seconds=60)
    failed_seconds: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the worker does for jobs of a kind.

    With `every`, the job is due again after that time, whether it failed or not; after a server
    error, such as a full disk, no earlier than others unless it is more frequent. `after` is called
    with the job, one of `OUTCOMES` and the seconds that it took.
    """

    run: Step
    every: timedelta | None = None
    after: Callable[[Job, str, float], None] = lambda _job, _outcome, _seconds: None


OUTCOMES = ("done", "failed", "retried", "postponed", "cancelled")


class _Signal:
    """Wakes one thread: one that waits, or the next one that does."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_set = False

    def set(self) -> None:
        with self._condition:
            self._is_set = True
            self._condition.notify()

    def wait(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_set)
            self._is_set = False


@dataclass(kw_only=True)
class JobWorker:
    """Threads for each lane, one that polls, one that renews leases, and one for `on_change`.

    `looks` find work in the records and queue jobs for it; each returns how many changes it made,
    and `BATCH` or more if it may find more at once. All lanes wait for them, so they parse no files
    of clients. `on_change` is called after each commit, and again if it returns True; no lane waits
    for it. `name` is unique to this process, and identifies it in leases.
    """

    jobs: JobRecords
    kinds: Mapping[str, Kind]
    looks: Sequence[Callable[[], int]] = ()
    on_change: Callable[[], bool] = lambda: False
    wakeup: WakeupSocket
    name: str
    clock: Callable[[], datetime]
    pace: WorkerPace = field(default_factory=WorkerPace)

    def __post_init__(self) -> None:
        self._keeper = LeaseKeeper(self.jobs, self.clock, self.pace)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._claiming = {lane: threading.Lock() for lane in Lane}
        self._signals = {lane: _Signal() for lane in Lane}
        self._has_changed = threading.Event()

    def start(self) -> None:
        """Start the threads; returns at once."""
        self.wakeup.open()
        self._begin("poll", self._poll)
        self._begin("leases", lambda: self._keeper.run(self._stop))
        self._begin("changes", self._follow_changes)
        for lane in Lane:
            for _ in range(lane.threads):
                self._begin(lane, partial(self._work, lane, self._signals[lane]))

    def stop(self, seconds: float) -> None:
        """Stop within about this time. Requeues running jobs; their attempts do not count."""
        deadline = time.monotonic() + seconds
        self._stop.set()
        self._keeper.stop_all()
        self.wakeup.notify()
        self._has_changed.set()
        for signal in self._signals.values():
            signal.set()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with suppress(UploadError):  # Otherwise their leases expire.
            self.jobs.release(self.name, self.clock())
        if not self._threads[0].is_alive():
            self.wakeup.close()

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        # A daemon thread: a job that does not stop in time ends with the process.
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
                log.error("background jobs: %s", error, exc_info=None if is_known else error)
                self._stop.wait(self.pace.failed_seconds)
        return None

    # ---- the thread that polls ----

    @cached_property
    def _change_mark(self) -> Callable[[], object]:
        """Made once, even if polling fails and begins again: it keeps a connection."""
        return self.jobs.change_mark()

    def _poll(self) -> None:
        for name, kind in self.kinds.items():
            if kind.every is not None:
                self.jobs.add(name, {"": ""}, Lane.UPKEEP, self.clock())

        def mark() -> object:
            return self._change_mark(), self.wakeup.count

        longest_seconds = QUIET_POLLS * self.pace.poll_seconds
        look = after_changes(self._look, mark, longest_seconds=longest_seconds)
        while not self._stop.is_set():
            count = look() or 0
            self.wakeup.wait(0.0 if count >= BATCH else self.pace.poll_seconds)

    def _look(self) -> int:
        """Look for work, and wake a thread of each lane that has some; returns the highest count.

        Pauses in proportion to the time that changes took.
        """
        self._has_changed.set()
        began = time.monotonic()
        count = 0
        for look in self.looks:
            try:
                count = max(count, look())
            except Exception as error:  # The others go on, and this one at the next poll.
                is_known = isinstance(error, UploadError)
                log.error("look for jobs: %s", error, exc_info=None if is_known else error)
        took = time.monotonic() - began
        for lane in self.jobs.lanes_due(self.clock()):
            self._signals[lane].set()
        if count:
            self._stop.wait(max(took, SHORTEST_PAUSE))  # Not cut short by a wake-up.
        return count

    # ---- the threads of changes and of lanes ----

    def _follow_changes(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), Lane.QUICK.niceness)
        while not self._stop.is_set():
            self._has_changed.clear()  # Before the call, to catch changes during it.
            if not self.on_change():
                self._has_changed.wait()

    def _work(self, lane: Lane, signal: _Signal) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lane.niceness)
        while not self._stop.is_set():
            with self._claiming[lane]:  # The limit of a client's jobs counts those before.
                job = self.jobs.claim(
                    *(lane, self.name, self.clock(), self.pace.lease, self.kinds),
                    running=self._keeper.running(),
                )
            if job is None:
                signal.wait()
                continue
            signal.set()  # For the next job, if there is one.
            kind = self.kinds[job.kind]
            began = time.monotonic()
            with self._keeper.keeping(job) as beat:
                outcome = self._run(kind, job, beat)
            kind.after(job, outcome, time.monotonic() - began)
        signal.set()  # The other threads stop, too.

    def _run(self, kind: Kind, job: Job, beat: Heartbeat) -> str:
        """Run a job and record its outcome; returns one of `OUTCOMES`."""
        try:
            kind.run(job, beat)
        except JobCancelled:
            return "postponed" if self._stop.is_set() else "cancelled"
        except JobFailed as error:
            return self._failed(kind, job, error.problem, is_final=error.is_final)
        except (UploadGone, UploadNotFound) as error:
            problem = PlaybackProblem(error.code, str(error))
            return self._failed(kind, job, problem, is_final=True)
        except (JobYields, UploadError) as error:
            return self._postponed(kind, job, error)
        except Exception as error:
            log.exception("%s crashed", job, extra=job.log_fields)
            problem = PlaybackProblem("internal_error", CRASHED.format(type(error).__name__))
            return self._failed(kind, job, problem, is_final=False)
        is_held = self._record(lambda: self.jobs.finish(job, self.clock(), again_after=kind.every))
        return "done" if is_held else "cancelled"

    def _failed(self, kind: Kind, job: Job, problem: PlaybackProblem, *, is_final: bool) -> str:
        after = kind.every or (None if is_final else job.retry_after(self.pace.first_retry))
        is_held = self._record(
            lambda: self.jobs.fail(job, problem, self.clock(), retry_after=after)
        )
        if not is_held:
            return "cancelled"
        log.warning("%s failed: %s", job, problem.detail, extra=job.log_fields)
        return "failed" if after is None or job.is_last_attempt else "retried"

    def _postponed(self, kind: Kind, job: Job, reason: JobYields | UploadError) -> str:
        problem, pause, lane, priority = None, timedelta(), None, None
        if isinstance(reason, JobYields):
            lane, priority = reason.lane, reason.priority
        else:
            problem = PlaybackProblem(reason.code, str(reason))
            pause = min(kind.every or self.pace.postponed, self.pace.postponed)
            log.warning("%s must wait: %s", job, problem.detail, extra=job.log_fields)
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
    pace: WorkerPace

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

    def running(self) -> list[Job]:
        """The jobs that this process runs, whether it still has their leases or not."""
        with self._changing:
            return [claim.beat.job for claim in self._claims.values()]

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
            stop.wait(self.pace.check_seconds)

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
