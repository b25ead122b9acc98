"""The media worker: makes what players need from the files that were published.

python -m app.server.media_worker
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path

from app.domain.jobs import Lane
from app.media.ffmpeg import Ffmpeg
from app.monitoring.folder import name_process
from app.monitoring.instruments import Instruments
from app.server.access_log import configure_logging
from app.server.child_processes import END_SIGNALS, end_with_supervisor
from app.services import build_services
from app.settings import Settings, SettingsError, from_env

STOP_SECONDS = 0.8
"""A step that has not stopped after this time ends with the process, and so do its programs."""

NAME_BYTES = 8

OUT_OF_MEMORY_SCORE = 500
"""Added to our score, and that of our programs, out of 1000; see proc_pid_oom_score_adj(5)."""

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Work until a signal of `END_SIGNALS` comes, all of which must be blocked."""
    instruments = Instruments()
    services = build_services(settings)
    services.prepare()
    for problem in Ffmpeg.find().problems():
        log.warning("%s", problem.detail)
    name = secrets.token_hex(NAME_BYTES)
    worker = services.media.worker(name=name, tell=instruments.count_job)
    worker.start()
    signal.sigwait(END_SIGNALS)
    worker.stop(STOP_SECONDS)


def be_killed_first() -> None:
    """Have the kernel kill this process before the web workers when memory runs out."""
    with suppress(OSError):  # Not everywhere may a process change its score.
        file = Path("/proc/self/oom_score_adj")
        inherited = int(file.read_text())  # The web workers have it, too.
        file.write_text(str(min(inherited + OUT_OF_MEMORY_SCORE, 1000)))


def main() -> int:
    """Run until a signal."""
    try:
        settings = from_env(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging(settings.log_level, settings.log_format)
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)  # In all threads that begin later, too.
    os.nice(Lane.QUICK.niceness)  # For its threads too; those of the background are nicer still.
    end_with_supervisor()
    name_process("media")
    be_killed_first()
    try:
        run(settings)
    except Exception:
        log.exception("the media worker cannot run")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
