"""Serves until it is stopped: gunicorn and the background worker side by side.

python -m app.serve
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

from app.metrics.folder import MetricsFolder
from app.services import build_services
from app.settings import Settings, SettingsError, from_env

RESTART_SECONDS = 1.0
"""Pause before a background worker that ended by itself is started again."""

POLL_SECONDS = 0.2

WEB = [sys.executable, "-m", "gunicorn", "-c", "python:app.gunicorn_conf", "wsgi:app"]
WORKER = [sys.executable, "-m", "app.worker"]


class Supervisor:
    """Runs both processes; the end of gunicorn, or a signal, ends all."""

    def __init__(self) -> None:
        self._is_stopping = False

    def run(self) -> int:
        """Serve; gunicorn's exit status, 0 after a signal."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        web, worker = subprocess.Popen(WEB), subprocess.Popen(WORKER)
        while not self._is_stopping and web.poll() is None:
            if worker.poll() is not None:
                time.sleep(RESTART_SECONDS)
                worker = subprocess.Popen(WORKER)
            time.sleep(POLL_SECONDS)
        for process in (web, worker):
            process.terminate()
        status = web.wait()
        worker.wait()
        return 0 if self._is_stopping else status

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Only notes it: whatever the signal has interrupted may be half done."""
        self._is_stopping = True


def main() -> int:
    """Check the settings, then serve."""
    try:
        settings = from_env(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _report_folders(settings)
    metrics = MetricsFolder(settings.data_dir)
    metrics.open()
    try:
        return Supervisor().run()
    finally:
        metrics.close()
        build_services(settings).database.checkpoint()


def _report_folders(settings: Settings) -> None:
    """Say at the start what would make uploads fail later."""
    problems = build_services(settings).store.problems()
    for problem in problems:
        severity = "error" if problem.is_fatal else "warning"
        sys.stderr.write(f"{severity}: {problem.detail}\n")
    if problems:
        sys.stderr.write(f"staging: {settings.staging_dir}, library: {settings.library_dir}\n")


if __name__ == "__main__":
    sys.exit(main())
