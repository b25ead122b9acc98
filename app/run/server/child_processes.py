"""Child processes: forked from this one, restarted when they end, and ended when this one ends.

All processes of a server need the same modules. A fork has the modules imported before it, and
shares their memory; a new interpreter would import them again. `run_worker` is what all workers but
the web server's do.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from setproctitle import setproctitle

from app.core.errors import UploadError
from app.run.monitoring.folder import name_process
from app.run.server.logs import configure_logging
from app.settings import Settings, SettingsError, from_env

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""Pauses before a worker is restarted (exponential backoff). They double from the first to the
longest; after a worker has run for as long as the longest, they start with the first again."""

END_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
"""A worker blocks these in all of its threads, and waits for one."""

RELOAD_SIGNAL = signal.SIGRTMIN
"""Signal by which the supervisor makes the web server replace its workers. A terminal or service
manager may send SIGHUP to all processes at once; only the supervisor interprets it."""

_BLOCKED_AT_START = END_SIGNALS | {signal.SIGHUP, RELOAD_SIGNAL}

SUPERVISOR_VARIABLE = "SLUICE_SUPERVISOR_PID"
"""Variable with the supervisor's process id, for the processes it starts."""

START_VARIABLE = "SLUICE_START_DESCRIPTOR"
"""Variable with the descriptor of a socket from the supervisor. Before it opens its port, the web
server reads a byte from it, and once it serves, it writes one."""

Work = Callable[[], None]
"""The main function of a process."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_M_ARENA_MAX = -8  # malloc.h

log = logging.getLogger(__name__)


@dataclass(eq=False)
class KeptRunning:
    """A process that is restarted whenever it ends.

    `start` returns a new one, or raises OSError, for example if memory is short; `name` is its
    name in the log.
    """

    start: Callable[[], BaseProcess]
    name: str
    first_pause_seconds: float = FIRST_PAUSE_SECONDS
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS
    settled_seconds: float = LONGEST_PAUSE_SECONDS

    def __post_init__(self) -> None:
        self._process: BaseProcess | None = None
        self._pause_seconds = self.first_pause_seconds
        self._start_at = self._started_at = time.monotonic()

    def look_after(self) -> None:
        """Start the process, or restart it if it has ended; call this often."""
        if self._process is None:
            if time.monotonic() < self._start_at:
                return
            try:
                self._process = self.start()
            except OSError as error:
                self._plan_start(f"could not be started: {error}")
            else:
                self._started_at = time.monotonic()
        elif (status := self._process.exitcode) is not None:
            self._process = None
            if time.monotonic() - self._started_at >= self.settled_seconds:
                self._pause_seconds = self.first_pause_seconds
            self._plan_start(f"ended with {describe_status(status)}")

    def stop(self) -> None:
        """Signal the process to end."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended; kill it after this time."""
        if self._process is None:
            return
        self._process.join(max(0.0, seconds))
        if self._process.is_alive():
            log.error("the %s does not end, and is killed", self.name)
            self._process.kill()
            self._process.join()

    def _plan_start(self, event: str) -> None:
        log.error("the %s %s; restarting in %g s", self.name, event, self._pause_seconds)
        self._start_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, self.longest_pause_seconds)


def spare_imported() -> None:
    """Exclude everything imported so far from garbage collection, here and in forked processes.

    Otherwise each process would scan all of it several times, and copy the shared memory: 0.3 s
    more CPU time to start and stop a server.
    """
    gc.freeze()
    gc.enable()  # Disabled during the imports of a start.


def import_spared(module: str) -> None:
    """Import a module without garbage collection, a tenth faster, and exempt it from later runs."""
    gc.disable()
    importlib.import_module(module)
    spare_imported()


def limit_arenas() -> None:
    """Let the threads of this process and of its forks share two of glibc's malloc arenas.

    Otherwise nearly every thread gets one of its own, which takes 0.2 MiB even if it only waits.
    Nearly all of our allocations hold the interpreter lock, so sharing costs nothing.
    """
    if "MALLOC_ARENA_MAX" in os.environ:  # The operator has chosen.
        return
    with suppress(AttributeError):  # Other C libraries have no arenas.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def fork(work: Work) -> BaseProcess:
    """Fork a process that runs `work` and then ends; this process may have only one thread.

    Ctrl-C and hang-ups reach every process of a terminal. The new process starts with SIGINT,
    SIGHUP and `RELOAD_SIGNAL` blocked, and unblocks those that it has handlers for.
    """
    # A daemon: if this process fails, it terminates its children instead of waiting for them.
    process = multiprocessing.get_context("fork").Process(target=_work, args=(work,), daemon=True)
    # Without this, a signal between the fork and `_work` would run a copy of our handlers.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_AT_START)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return process


def _work(work: Work) -> None:
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    work()


def run_module(*command: str) -> None:
    """Run a module with arguments in this process, like `python -m`."""
    _show_as(*command)
    sys.argv = list(command)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def import_main(module: str) -> Work:
    """Returns a function that runs the module like `python -m`; its `main` returns the exit status.

    The module is imported now: a process forked after an update of our files still runs the same
    code as the others.
    """
    main = importlib.import_module(module).main

    def work() -> None:
        _show_as(module)
        sys.exit(main())

    return work


def _show_as(*command: str) -> None:
    setproctitle(f"{sys.executable} -m {' '.join(command)}")


def describe_status(status: int) -> str:
    """An exit status in words, or the signal that ended the process."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def await_checks() -> None:
    """Wait until the supervisor's start checks have passed; exits if the supervisor has ended."""
    if START_VARIABLE in os.environ and not os.read(int(os.environ[START_VARIABLE]), 1):
        sys.exit(0)


def tell_serving() -> None:
    """Notify the supervisor that the web server serves; only the first call counts."""
    if START_VARIABLE in os.environ:
        with suppress(OSError):
            os.write(int(os.environ[START_VARIABLE]), b"1")


def end_with_supervisor() -> None:
    """Request SIGTERM for this process when its supervisor ends; does nothing without one."""
    if SUPERVISOR_VARIABLE in os.environ:
        end_with_parent(int(os.environ[SUPERVISOR_VARIABLE]))


def end_with_parent(expected: int) -> None:
    """Request SIGTERM for this process when its parent ends, or now if it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != expected:
        os.kill(os.getpid(), signal.SIGTERM)


# ---- a worker's process --------------------------------------------------------------------------


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
