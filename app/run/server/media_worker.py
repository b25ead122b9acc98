"""The media worker: makes derived files for players from published files.

python -m app.run.server.media_worker
"""

from __future__ import annotations

import logging
import secrets
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from app.core.jobs import Lane
from app.run.build import build_services
from app.run.monitoring.instruments import Instruments
from app.run.server.child_processes import END_SIGNALS, run_worker
from app.settings import Settings
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.work import MediaWork

STOP_SECONDS = 0.8
"""A step that has not stopped after this time ends with the process, and so do its programs."""

NAME_BYTES = 8

OUT_OF_MEMORY_SCORE = 500
"""Added to our OOM score and that of our programs, out of 1000; see proc_pid_oom_score_adj(5)."""

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Work until one of `END_SIGNALS` arrives; all of them must be blocked."""
    be_killed_first()
    instruments = Instruments()
    services = build_services(settings)
    services.prepare()
    for problem in Ffmpeg.find().problems():
        log.warning("%s", problem.detail)
    name = secrets.token_hex(NAME_BYTES)
    work = MediaWork(services.media)
    worker = work.worker(name=name, tell=instruments.count_job)
    worker.start()
    calibrate = partial(work.calibrate, name)
    threading.Thread(target=calibrate, daemon=True, name="calibration").start()
    signal.sigwait(END_SIGNALS)
    worker.stop(STOP_SECONDS)


def be_killed_first() -> None:
    """Make the OOM killer choose this process before the web workers."""
    with suppress(OSError):  # Some systems do not let a process change its score.
        file = Path("/proc/self/oom_score_adj")
        inherited = int(file.read_text())  # Also the score of the web workers.
        file.write_text(str(min(inherited + OUT_OF_MEMORY_SCORE, 1000)))


def main() -> int:
    """Work until a signal arrives; returns the exit status."""
    return run_worker(run, name="media", niceness=Lane.QUICK.niceness)


if __name__ == "__main__":
    sys.exit(main())
