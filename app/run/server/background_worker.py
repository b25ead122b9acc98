"""The background worker: expiry, recovery, digests, webhooks.

python -m app.run.server.background_worker
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import partial

from app.access import audit, webhooks
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

DIGEST_SECONDS = 0.25
"""How often to look for published files without a digest, if anything has changed."""

FORGETTING_SECONDS = 3600.0
"""How often old audit log entries, webhook deliveries, failed sign-ins and links are deleted."""

LIBRARY_SECONDS = 24 * 3600.0
"""How often to look for files whose deletion was interrupted, besides when the worker starts."""

DELIVERY_SECONDS = 0.5
"""How often to look for webhook events, if anything has changed."""

QUIET_SECONDS = 2.0
"""How often to look for digests and deliveries if nothing has changed: deliveries are retried."""

LONGEST_SWEEP_SECONDS = COUNTED_GAP.total_seconds() / 2
"""Each sweep reads the clocks, and the time that counts between two readings is limited: with
longer pauses uploads would live for weeks."""

FAILED_SECONDS = 2.0
"""Pause after a failure: a full disk stays full for a while, and a digest that cannot be recorded
was computed for nothing."""

BACKGROUND_NICENESS = 19
"""Hashing a file takes a core for seconds: uploads have priority."""


def repeat(job: Callable[[], object], *, every: float, stop: threading.Event) -> None:
    """Run `job` at this interval until `stop`; failures are logged, and the job is retried."""
    while not stop.is_set():
        stop.wait(every if attempt(job) else max(every, FAILED_SECONDS))


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
    return after_changes(job, services.database.change_mark(), longest_seconds=QUIET_SECONDS)


def run(settings: Settings) -> None:
    """Work until one of `END_SIGNALS` arrives; all of them must be blocked."""
    stop = threading.Event()
    services = build_services(settings, Instruments().count_upload)
    services.prepare()
    housekeeping = services.housekeeping
    identity = services.identity
    pause = sweep_pause(settings)
    jobs: list[tuple[Callable[[], object], float]] = [
        (partial(sweep, services, pause), pause),
        (_after_changes(services, housekeeping.digest), DIGEST_SECONDS),
        (partial(forget, services), FORGETTING_SECONDS),
        (partial(remove_deleted, services), LIBRARY_SECONDS),
        (_after_changes(services, identity.webhook_delivery.deliver_due), DELIVERY_SECONDS),
    ]
    threads = [
        threading.Thread(target=repeat, args=(job,), kwargs={"every": every, "stop": stop})
        for job, every in jobs
    ]
    for thread in threads:
        thread.daemon = True  # The digest of a long file starts over after a restart.
        thread.start()
    # Not in a signal handler: it would wait for a lock that the interrupted thread may hold.
    signal.sigwait(END_SIGNALS)
    stop.set()


def main() -> int:
    """Work until a signal arrives; returns the exit status."""
    return run_worker(run, name="background", niceness=BACKGROUND_NICENESS)


if __name__ == "__main__":
    sys.exit(main())
