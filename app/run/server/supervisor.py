"""The supervisor: runs gunicorn and the other workers until it is stopped.

python -m app.run.server.supervisor
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    """Exit with one line if the server has not begun to serve."""
    os.write(2, f"Stopped by {signal.Signals(number).name} while starting.\n".encode())
    if number == signal.SIGINT:
        os._exit(INTERRUPTED)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # Process 1 of a container cannot end itself with a signal.


INTERRUPTED = 130
"""The exit status of a start interrupted by Ctrl-C, as in shells."""

if __name__ == "__main__":
    # Garbage collection would scan the imported modules: a tenth of the import time.
    gc.disable()
    # Before the other imports, which take most of the start-up time.
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, _end_at_once)

import logging
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from multiprocessing.process import BaseProcess
from secrets import token_hex

from app.core.errors import UploadError
from app.db.errors import operator_message
from app.db.this_node import VARIABLE as NODE_VARIABLE
from app.db.this_node import new_name, this_node
from app.http.services import Services
from app.run.build import build_services
from app.run.monitoring.folder import MetricsFolder
from app.run.server import start_checks
from app.run.server.child_processes import (
    RELOAD_SIGNAL,
    START_VARIABLE,
    SUPERVISOR_VARIABLE,
    KeptRunning,
    Work,
    await_checks,
    describe_status,
    fork,
    import_main,
    import_spared,
    limit_arenas,
    run_module,
    spare_imported,
)
from app.run.server.logs import configure_logging, say_goodbye, say_stopping
from app.settings import PREFIX, Settings, SettingsError, from_env, without_effect
from app.settings.staging import choose_staging, remember_staging
from app.storage.base import SetupProblem
from app.storage.data_folder import FolderLocked, lock_data_folder, shown
from app.uploads.storage_identity import WrongStorage

POLL_SECONDS = 0.2

SERVING_SECONDS = 10.0
"""The other workers start once the web server serves, or after this time: it needs the processor
first, also for its calibration, which encodes a video."""

END_SECONDS = 10.0
"""How long the workers may take to end after the web server. They need a second; one that waits for
a dead database would never end."""

BUCKET_SECONDS = 10.0
"""How long the start waits for each response of the object store."""

STOPPING = (signal.SIGTERM, signal.SIGINT)

HARMLESS = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that would end a process by default, and are ignored here."""

WEB = ["gunicorn", "-c", "python:app.run.server.gunicorn_conf", "wsgi:app"]
WORKERS = {"background worker": "app.run.server.background_worker"}
NODE_WORKERS = {"node worker": "app.run.server.node_worker"}
"""Modules by name, because they import prometheus-client, which reads the metrics folder at import.
The node worker runs only if other nodes may share the records."""

log = logging.getLogger(__name__)


class Supervisor:
    """Runs all processes, until the web server ends or a signal arrives."""

    def __init__(
        self,
        settings: Settings,
        lock: int | None,
        *,
        web: Work,
        import_workers: Callable[[], Mapping[str, Work]],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`prepare` may refuse the start: the web server opens its port only after it.

        While it runs and the workers' modules are imported, the web server imports its own.
        """
        self._settings = settings
        self._lock = lock
        self._web = web
        self._import_workers = import_workers
        self._prepare = prepare
        self._start_socket, self._start_socket_of_web = socket.socketpair()
        self.is_prepared = False
        self._is_stopped_by_hangup = False
        self._arrived: list[int] = []
        self._stopping: list[int] = []

    def run(self) -> int:
        """Serve; returns the web server's exit status, 0 after a signal.

        Raises what `prepare` raises.
        """
        # Our parent may ignore SIGCHLD, and we inherit that: the kernel would then discard the
        # status of a process that ends, and it would not be restarted.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # As `nohup` sets it.
        self._is_stopped_by_hangup = not is_ignored and _has_terminal()
        for number in HARMLESS:
            signal.signal(number, self._note)
        # The web server's end of the socket is kept across exec().
        descriptor = self._start_socket_of_web.fileno()
        os.set_inheritable(descriptor, True)
        os.environ[START_VARIABLE] = str(descriptor)
        web = self._fork(self._web)
        del os.environ[START_VARIABLE]
        self._start_socket_of_web.close()
        workers: list[KeptRunning] = []
        try:
            self._prepare()
            self.is_prepared = True
            for number in (*STOPPING, signal.SIGHUP):
                signal.signal(number, self._note)
            with suppress(OSError):  # The web server has ended, which is detected below.
                self._start_socket.send(b"1")
            for name, work in self._import_workers().items():
                workers.append(KeptRunning(partial(self._fork, work), name=name))
            deadline = time.monotonic() + SERVING_SECONDS
            while web.exitcode is None and not self._arrived and time.monotonic() < deadline:
                if select.select([self._start_socket], [], [], POLL_SECONDS)[0]:
                    break
            # Every web worker writes a byte. Those of later workers are not read, and must not
            # block.
            self._start_socket.close()
            self._serve_until_told(web, workers)
        finally:
            # Also after errors: our caller unlocks the folder for the next server, and our
            # processes must have ended by then.
            _end(web, workers)
        return 0 if self._stopping else web.exitcode or 0

    def _serve_until_told(self, web: BaseProcess, workers: Sequence[KeptRunning]) -> None:
        """Serve until a signal; after SIGTERM, drain: serve but not ready, for load balancers."""
        self._look_after(web, workers, lambda: not self._stopping)
        if not self._stopping:
            log.error("the web server ended with %s", describe_status(web.exitcode or 0))
            return
        say_stopping(self._settings)
        this_node(self._settings.data_dir).leave()
        ends_at = time.monotonic() + self._settings.drain_seconds
        self._look_after(
            web,
            workers,
            lambda: self._stopping == [signal.SIGTERM] and time.monotonic() < ends_at,
        )

    def _look_after(
        self, web: BaseProcess, workers: Sequence[KeptRunning], is_wanted: Callable[[], bool]
    ) -> None:
        """Handle signals and restart workers that die, until stopped or the web server ends."""
        while is_wanted() and web.exitcode is None:
            for worker in workers:
                worker.look_after()
            time.sleep(POLL_SECONDS)
            while self._arrived:
                number = signal.Signals(self._arrived.pop(0))
                if number in STOPPING or (number == signal.SIGHUP and self._is_stopped_by_hangup):
                    log.info("%s: the server stops", number.name)
                    self._stopping.append(number)
                elif number == signal.SIGHUP:
                    log.info("%s: the web server replaces its workers", number.name)
                    with suppress(ProcessLookupError):  # The web server has just ended.
                        os.kill(web.pid or 0, RELOAD_SIGNAL)
                else:
                    log.info("%s: ignored", number.name)

    def _fork(self, work: Work) -> BaseProcess:
        """Fork a process without our lock: one that outlives us must not block the next server.

        Also without our end of the socket, whose closing tells the web server that we have ended.
        """

        def begin() -> None:
            self._start_socket.close()
            if self._lock is not None:
                os.close(self._lock)
            work()

        return fork(begin)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        """Only record the signal: it may have interrupted anything."""
        self._arrived.append(number)


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal, which sends SIGHUP when it closes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _end(web: BaseProcess, workers: Sequence[KeptRunning]) -> None:
    web.terminate()
    for worker in workers:
        worker.stop()
    web.join()
    deadline = time.monotonic() + END_SECONDS
    for worker in workers:
        worker.wait(deadline - time.monotonic())


def _serve() -> None:
    """Become gunicorn.

    The operator's arguments may choose workers such as gevent's. Those patch sockets and locks
    before anything else imports them, so they need an interpreter that has imported nothing.
    """
    if os.environ.get("GUNICORN_CMD_ARGS"):
        await_checks()
        os.execv(sys.executable, [sys.executable, "-m", *WEB])  # noqa: S606 - without a shell
    import_spared("app.run.factory")  # By name: app.run.server knows no application.
    await_checks()
    run_module(*WEB)


def main() -> int:
    """Check settings, folders and port, then records and storage, and serve."""
    spare_imported()
    limit_arenas()
    try:
        settings = from_env(os.environ)
        configure_logging(settings.log_level)
        for line in without_effect(os.environ):
            log.warning("%s", line)
        if settings.smtp_url == "" and f"{PREFIX}MAIL_FROM" in os.environ:
            log.warning("%sMAIL_FROM has no effect without %sSMTP_URL", PREFIX, PREFIX)
        start_checks.require_usable_folders(settings)
        lock = lock_data_folder(settings.data_dir)
        start_checks.require_free_address(settings.host, settings.port)
    except UploadError as error:
        return _refused(operator_message(error))
    except (SettingsError, start_checks.StartRefused, FolderLocked) as error:
        return _refused(error)
    try:
        return _run(settings, lock)
    except (start_checks.StartRefused, WrongStorage) as error:
        return _refused(error)
    finally:
        if lock is not None:
            os.close(lock)


def _refused(reason: object) -> int:
    sys.stderr.write(f"{reason}\n")
    return 2


def _run(settings: Settings, lock: int | None) -> int:
    """Serve until the end; returns the exit status."""
    if f"{PREFIX}STAGING_DIR" not in os.environ:
        choice = choose_staging(settings.data_dir)
        log.info("unfinished uploads are in %s: %s", shown(choice.path), choice.reason)
    os.environ[SUPERVISOR_VARIABLE] = str(os.getpid())
    os.environ[NODE_VARIABLE] = new_name()
    os.environ[f"{PREFIX}STAGING_DIR"] = str(settings.staging_dir)
    modules = WORKERS | (NODE_WORKERS if settings.database_url else {})
    metrics = MetricsFolder(settings.data_dir)
    metrics.open()
    import_spared("app.run.monitoring.instruments")  # Every process needs it; reads the folder now.
    supervisor = Supervisor(
        settings,
        lock,
        web=_serve,
        import_workers=lambda: {name: import_main(each) for name, each in modules.items()},
        prepare=partial(_prepare, settings),
    )
    try:
        with closing(metrics):
            return supervisor.run()
    finally:
        if supervisor.is_prepared:  # All of our processes have ended.
            services = build_services(settings)
            services.database.checkpoint()
            if services.nodes is not None:
                with closing(services.database), suppress(UploadError):  # The lease then expires.
                    services.nodes.remove(services.node.name)
            say_goodbye()


def _prepare(settings: Settings) -> None:
    """Prepare the services here, so that database errors are reported once, in one line."""
    try:
        services = build_services(settings)
        with closing(services.database):
            services.prepare()
            if services.nodes is not None and services.bucket is None:
                start_checks.require_only_node(services.nodes)
            services.prepare_storage()
            # From here on clock jumps are handled. If this fails, the background worker does it
            # first.
            with suppress(UploadError):
                services.housekeeping.start()
            invitations = services.identity.invitations
            if not settings.is_open and (code := invitations.to_set_up()) is not None:
                log.warning(
                    "this server has no administrator yet: open %s/set-up/%s within 24 hours (from "
                    "another machine, with this one's name), or run flask --app wsgi users add "
                    "EMAIL --admin",
                    settings.link_url,
                    code,
                )
    except UploadError as error:
        raise start_checks.StartRefused(operator_message(error)) from error
    # The default depends on existing folders, so the choice is recorded in the data folder.
    remember_staging(settings.data_dir, settings.staging_dir)
    _report_problems(services)


def _report_problems(services: Services) -> None:
    """Report problems that would make uploads fail later, or leave the server open."""
    settings = services.settings
    for line in start_checks.staging_warnings(settings):
        log.warning("%s", line)
    problems = services.problems()
    if services.bucket is not None and not any(problem.is_fatal for problem in problems):
        from app.storage.s3.check import Grade, check  # noqa: PLC0415 - only with a bucket

        finding = check(services.bucket.within(BUCKET_SECONDS), token_hex(8))
        if finding.grade is not Grade.FINE:
            is_fatal = finding.grade is Grade.FATAL
            detail = f"the bucket: {finding.detail}"
            problems.append(SetupProblem("bucket", detail, is_fatal=is_fatal))
    for problem in problems:
        severity = "error" if problem.is_fatal else "warning"
        sys.stderr.write(f"{severity}: {problem.detail}\n")
    if problems:
        staging, library = shown(settings.staging_dir), shown(settings.library_dir)
        sys.stderr.write(f"staging: {staging}, library: {library}\n")


if __name__ == "__main__":
    sys.exit(main())
