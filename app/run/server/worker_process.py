"""Start, work and end of a worker process other than the web server's."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable

from app.core.errors import UploadError
from app.run.monitoring.folder import name_process
from app.run.server.access_log import configure_logging
from app.run.server.child_processes import END_SIGNALS, end_with_supervisor
from app.settings import Settings, SettingsError, from_env

log = logging.getLogger(__name__)


def attempt(job: Callable[[], object]) -> bool:
    """Run `job`; returns whether it succeeded. Failures are logged."""
    try:
        job()
    except Exception as error:
        is_known = isinstance(error, UploadError)  # For example, a full disk is not a bug.
        log.error("background job failed: %s", error, exc_info=None if is_known else error)
        return False
    return True


def run_worker(work: Callable[[Settings], None], *, name: str, niceness: int) -> int:
    """Run `work`, which waits for one of `END_SIGNALS`; returns the exit status.

    The signals are blocked in this thread and in all later ones. `name` is used in metrics and log
    lines.
    """
    try:
        settings = from_env(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging(settings.log_level)
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    os.nice(niceness)
    end_with_supervisor()
    name_process(name)
    try:
        work(settings)
    except Exception:
        log.exception("the %s worker cannot run", name)
        return 1
    return 0
