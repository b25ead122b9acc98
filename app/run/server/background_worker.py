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
from functools import partial
from pathlib import Path

from app.access import audit, webhooks
from app.core.jobs import Lane
from app.db.nodes import Leases
from app.db.waking import after_changes
from app.http.services import Services
from app.run.build import build_services
from app.run.monitoring.instruments import Instruments
from app.run.server.child_processes import END_SIGNALS, attempt, run_worker
from app.settings import Settings
from app.settings.table import LEAST_SECONDS
from app.storage.machine import COUNTED_GAP
from app.uploads.housekeeping import LIBRARY, SWEEP
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.work import MediaWork
from app.video.make.worker import MediaWorker

STUCK_SECONDS = 5.0
"""How often to look for uploads whose publishing was interrupted."""

FORGETTING_SECONDS = 3600.0
"""How often old audit log entries, webhook deliveries, failed sign-ins and links are deleted."""

LIBRARY_SECONDS = 24 * 3600.0
"""How often to look for files whose deletion was interrupted, besides when the worker starts."""

POLL_SECONDS = 1.0
"""How often to look for digests and deliveries without a wake-up, if anything has changed."""

QUIET_SECONDS = 2.0
"""How often to look for them if nothing has changed: deliveries are retried."""

LONGEST_SWEEP_SECONDS = COUNTED_GAP.total_seconds() / 2
"""Each sweep reads the clocks, and the time that counts between two readings is limited: with
longer pauses uploads would live for weeks."""

FAILED_SECONDS = 2.0
"""Pause after a failure: a full disk stays full for a while, and a digest that cannot be recorded
was computed for nothing."""

BACKGROUND_NICENESS = 19
"""Hashing a file takes a core for seconds: uploads have priority."""

MEDIA_STOP_SECONDS = 0.8
"""A media job that has not stopped after this time ends with the process; so do its programs."""

NAME_BYTES = 8

OUT_OF_MEMORY_SCORE = 500
"""Added to our OOM score and that of our programs, out of 1000; see proc_pid_oom_score_adj(5)."""

log = logging.getLogger(__name__)


def repeat(
    job: Callable[[], object],
    *,
    every: float,
    stop: threading.Event,
    woken: threading.Event | None = None,
) -> None:
    """Run `job` at this interval until `stop`, and at once when it is `woken`.

    Failures are logged, and the job is retried.
    """
    while not stop.is_set():
        if woken is not None:
            woken.clear()  # Before the job, to catch wake-ups during it.
        if not attempt(job):
            stop.wait(max(every, FAILED_SECONDS))
        else:
            (woken or stop).wait(every)


def sweep_pause(settings: Settings) -> float:
    """Seconds between two sweeps: often enough that no upload lives a tenth longer than it may."""
    wanted = min(settings.sweep_seconds, settings.expiry_seconds / 10)
    return min(max(LEAST_SECONDS, wanted), LONGEST_SWEEP_SECONDS)


def sweep(services: Services, pause: float) -> None:
    """Expire uploads, then videos, allowing for jumps of the clock.

    Only one of several nodes does this; each node removes its own leftovers.
    """
    if Leases(services.database).take(SWEEP, pause):
        services.video_expiry.sweep(services.housekeeping.sweep())
    services.housekeeping.collect_garbage()


def forget(services: Services) -> None:
    """Delete old records, on one of several nodes. One failure does not stop the others."""
    leases, identity = Leases(services.database), services.identity
    if leases.take("forgetting", FORGETTING_SECONDS):
        attempt(partial(audit.remove_old, services.context))
        attempt(partial(webhooks.remove_old, services.context))
        attempt(identity.password_checks.remove_old)
        attempt(identity.invitations.remove_old)
        attempt(leases.remove_old)


def remove_deleted(services: Services) -> None:
    """Remove files whose deletion was interrupted; one of several nodes does, hourly at most."""
    if Leases(services.database).take(LIBRARY, FORGETTING_SECONDS):
        services.housekeeping.remove_deleted()


def _after_changes(services: Services, job: Callable[[], object]) -> Callable[[], object]:
    change, wakeup = services.database.change_mark(), services.media.wakeup

    def mark() -> object:
        return change(), wakeup.count

    return after_changes(job, mark, longest_seconds=QUIET_SECONDS)


def run(settings: Settings) -> None:
    """Work until one of `END_SIGNALS` arrives; all of them must be blocked."""
    be_killed_first()
    instruments = Instruments()
    services = build_services(settings, instruments.count_upload)
    services.prepare()
    stop = threading.Event()
    for work in repeated_jobs(services, stop):
        # A daemon: the digest of a long file starts over after a restart.
        threading.Thread(target=_at_idle_priority, args=(work,), daemon=True).start()
    media = start_media(services, instruments)
    # Not in a signal handler: it would wait for a lock that the interrupted thread may hold.
    signal.sigwait(END_SIGNALS)
    stop.set()
    media.stop(MEDIA_STOP_SECONDS)


def _at_idle_priority(work: Callable[[], None]) -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_NICENESS)
    work()


def be_killed_first() -> None:
    """Make the OOM killer choose this process before the web workers."""
    with suppress(OSError):  # Some systems do not let a process change its score.
        file = Path("/proc/self/oom_score_adj")
        inherited = int(file.read_text())  # Also the score of the web workers.
        file.write_text(str(min(inherited + OUT_OF_MEMORY_SCORE, 1000)))


def repeated_jobs(services: Services, stop: threading.Event) -> list[Callable[[], None]]:
    """Jobs that repeat until `stop`, each for a thread of its own."""
    pause, wakeup = sweep_pause(services.settings), services.media.wakeup
    timed: list[tuple[Callable[[], object], float]] = [
        (partial(sweep, services, pause), pause),
        (services.housekeeping.finish_stuck, STUCK_SECONDS),
        (partial(forget, services), FORGETTING_SECONDS),
        (partial(remove_deleted, services), LIBRARY_SECONDS),
    ]
    woken = [services.housekeeping.digest, services.identity.webhook_delivery.deliver_due]
    return [
        *(partial(repeat, job, every=every, stop=stop) for job, every in timed),
        *(
            partial(
                repeat,
                _after_changes(services, job),
                every=POLL_SECONDS,
                stop=stop,
                woken=wakeup.event(),
            )
            for job in woken
        ),
    ]


def start_media(services: Services, instruments: Instruments) -> MediaWorker:
    """Start the threads that run media jobs, and measure how fast this machine encodes."""
    for problem in Ffmpeg.find().problems():
        log.warning("%s", problem.detail)
    name = secrets.token_hex(NAME_BYTES)
    work = MediaWork(services.media)
    worker = work.worker(name=name, tell=instruments.count_job)
    worker.start()
    calibrate = partial(work.calibrate, name)
    threading.Thread(target=calibrate, daemon=True, name="calibration").start()
    return worker


def main() -> int:
    """Work until a signal arrives; returns the exit status."""
    return run_worker(run, name="background", niceness=Lane.QUICK.niceness)


if __name__ == "__main__":
    sys.exit(main())
