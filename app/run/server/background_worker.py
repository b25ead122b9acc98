"""The background worker: expiry, recovery, digests, webhooks, and what players need of a video.

python -m app.run.server.background_worker

Each thread sets its own niceness, which the programs it runs inherit.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from app.access import audit, webhooks
from app.core.errors import UploadError
from app.core.jobs import DIGESTS, FORGETTING, GARBAGE, LIBRARY, SWEEP, WEBHOOK, Lane
from app.core.upload import Upload, UploadId
from app.db.job_worker import JobWorker, Kind
from app.http.services import Services
from app.run.build import build_services
from app.run.monitoring.instruments import Instruments
from app.run.server.child_processes import END_SIGNALS, attempt, run_worker
from app.settings import Settings
from app.settings.table import LEAST_SECONDS
from app.storage.machine import COUNTED_GAP
from app.uploads.housekeeping import Housekeeping
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.work import MediaWork

STUCK_SECONDS = 5.0
"""How often to look for uploads whose publishing was interrupted."""

PUBLISHED_AT_ONCE = 4
"""How many of them a node publishes at a time. Those that take minutes hold up others only if there
are as many."""

FORGETTING_SECONDS = 3600.0
"""How often old audit log entries, webhook deliveries, failed sign-ins and links are deleted."""

LIBRARY_SECONDS = 24 * 3600.0
"""How often to look for files whose deletion was interrupted, besides when a worker starts, for
which once in `FORGETTING_SECONDS` is enough."""

LONGEST_SWEEP_SECONDS = COUNTED_GAP.total_seconds() / 2
"""Each sweep reads the clocks, and the time that counts between two readings is limited: with
longer pauses uploads would live for weeks."""

DIGEST_SECONDS = 60.0
"""Pause after a failed run for digests; otherwise they are computed as soon as they are wanted."""

STOP_SECONDS = 0.8
"""A job that has not stopped after this time ends with the process; so do its programs."""

NAME_BYTES = 8

OUT_OF_MEMORY_SCORE = 500
"""Added to our OOM score and that of our programs, out of 1000; see proc_pid_oom_score_adj(5)."""

log = logging.getLogger(__name__)


def repeat(job: Callable[[], object], *, every: float, stop: threading.Event) -> None:
    """Run `job` at this interval until `stop`. Failures are logged, and the job is retried."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), Lane.UPKEEP.niceness)
    while not stop.is_set():
        attempt(job)
        stop.wait(every)


class StuckUploads:
    """A queue of interrupted uploads, for threads that publish them at the same time."""

    def __init__(self, housekeeping: Housekeeping) -> None:
        self._housekeeping = housekeeping
        self._queue = SimpleQueue[Upload]()
        self._unfinished = set[UploadId]()
        """Those that are in the queue or being published."""

    def look(self) -> None:
        """Queue what is due, unless it is queued or being published already."""
        # Copied first: one that ends during the query may still be among its rows.
        unfinished = self._unfinished.copy()
        for upload in self._housekeeping.stuck():
            if upload.id not in unfinished:
                self._unfinished.add(upload.id)
                self._queue.put(upload)

    def publish_next(self) -> None:
        """Wait for an upload in the queue, and publish it."""
        upload = self._queue.get()
        try:
            self._housekeeping.finish(upload)
        finally:
            self._unfinished.discard(upload.id)


def sweep_pause(settings: Settings) -> float:
    """Seconds between two sweeps: often enough that no upload lives a tenth longer than it may."""
    wanted = min(settings.sweep_seconds, settings.expiry_seconds / 10)
    return min(max(LEAST_SECONDS, wanted), LONGEST_SWEEP_SECONDS)


def forget(services: Services) -> None:
    """Delete old records. One failure does not stop the others."""
    identity = services.identity
    attempt(partial(audit.remove_old, services.context))
    attempt(partial(webhooks.remove_old, services.context))
    attempt(identity.password_checks.remove_old)
    attempt(identity.invitations.remove_old)


def run(settings: Settings) -> None:
    """Work until one of `END_SIGNALS` arrives; all of them must be blocked."""
    be_killed_first()
    instruments = Instruments()
    services = build_services(settings, instruments.count_upload)
    services.prepare()
    stop = threading.Event()
    for work, every in each_node_does(services):
        loop = partial(repeat, work, every=every, stop=stop)
        threading.Thread(target=loop, daemon=True).start()
    worker = start_jobs(services, instruments)
    # Not in a signal handler: it would wait for a lock that the interrupted thread may hold.
    signal.sigwait(END_SIGNALS)
    stop.set()
    worker.stop(STOP_SECONDS)


def be_killed_first() -> None:
    """Make the OOM killer choose this process before the web workers."""
    with suppress(OSError):  # Some systems do not let a process change its score.
        file = Path("/proc/self/oom_score_adj")
        inherited = int(file.read_text())  # Also the score of the web workers.
        file.write_text(str(min(inherited + OUT_OF_MEMORY_SCORE, 1000)))


def start_jobs(services: Services, instruments: Instruments) -> JobWorker:
    """Start the threads that run jobs, and measure how fast this machine encodes."""
    for problem in Ffmpeg.find().problems():
        log.warning("%s", problem.detail)
    name = secrets.token_hex(NAME_BYTES)
    work = MediaWork(services.media)
    media = work.jobs(name=name, tell=instruments.count_job)
    jobs, clock, wakeup = services.media.jobs, services.media.clock, services.media.wakeup
    webhook_delivery = services.identity.webhook_delivery
    worker = JobWorker(
        jobs=jobs,
        kinds={
            **media.kinds(),
            # Woken again: more may be due.
            WEBHOOK: Kind(run=webhook_delivery.deliver_some, after=lambda *_: wakeup.notify()),
            **periodic_kinds(services),
        },
        looks=[
            media.look,
            lambda: webhook_delivery.look(jobs, clock()),
            services.housekeeping.look_for_digests,
        ],
        on_change=media.look_at_arrivals,
        wakeup=wakeup,
        name=name,
        clock=clock,
    )
    with suppress(UploadError):
        jobs.hurry(LIBRARY, clock(), idle=timedelta(seconds=FORGETTING_SECONDS))
    worker.start()
    calibrate = partial(work.calibrate, name)
    threading.Thread(target=calibrate, daemon=True, name="calibration").start()
    return worker


def each_node_does(services: Services) -> list[tuple[Callable[[], object], float]]:
    """What each node does itself, with the seconds between two runs.

    Taking over uploads does not wait until the lease of a dead node's job ends; and only the node
    itself sees its folders.
    """
    stuck = StuckUploads(services.housekeeping)
    found: list[tuple[Callable[[], object], float]] = [(stuck.look, STUCK_SECONDS)]
    found += [(stuck.publish_next, 0.0)] * PUBLISHED_AT_ONCE
    if (remove_leftovers := services.store.inspection.remove_leftovers) is not None:
        found.append((remove_leftovers, sweep_pause(services.settings)))
    return found


def periodic_kinds(services: Services) -> dict[str, Kind]:
    """What one of several nodes does at intervals."""
    housekeeping, pause = services.housekeeping, sweep_pause(services.settings)

    def periodic(work: Callable[[], object], every: float) -> Kind:
        return Kind(run=lambda _job, _beat: work(), every=timedelta(seconds=every))

    found = {
        # Expires uploads, then videos, allowing for jumps of the clock.
        SWEEP: periodic(lambda: services.video_expiry.sweep(housekeeping.sweep()), pause),
        FORGETTING: periodic(partial(forget, services), FORGETTING_SECONDS),
        LIBRARY: periodic(housekeeping.remove_deleted, LIBRARY_SECONDS),
        DIGESTS: periodic(housekeeping.digest, DIGEST_SECONDS),
    }
    if (collect_garbage := services.store.inspection.collect_garbage) is not None:
        found[GARBAGE] = Kind(
            run=lambda _job, beat: collect_garbage(beat.go_on), every=timedelta(seconds=pause)
        )
    return found


def main() -> int:
    """Work until a signal arrives; returns the exit status."""
    return run_worker(run, name="background", niceness=Lane.QUICK.niceness)


if __name__ == "__main__":
    sys.exit(main())
