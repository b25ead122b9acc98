"""The supervisor with processes that are quick to start; tests/e2e has it with the real ones."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests

from tests.live_server import NO_FFMPEG, ROOT, Server
from tests.long_tests import long
from tests.waiting import wait_until

BEGIN = """
import fcntl, os, signal, sys, termios, time
from functools import partial
from app.run.server.child_processes import await_checks, fork, import_main
from app.run.server.supervisor import WORKERS, Supervisor
from app.settings import from_env
"""


def start(script: str) -> subprocess.Popen[str]:
    """Run a script in an interpreter of its own: only a process with one thread may fork."""
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_a_process_that_ends_is_noticed_even_if_our_starter_ignored_its_children() -> None:
    script = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
workers = {"background worker": partial(time.sleep, 600)}
web = partial(sys.exit, 3)
sys.exit(Supervisor(from_env({}), None, web=web, import_workers=lambda: workers).run())
"""
    with start(script) as supervisor:
        try:
            assert supervisor.wait(120) == 3
        finally:
            supervisor.kill()


def test_whatever_fails_the_next_server_is_let_in_only_after_the_last_process_has_ended() -> None:
    script = """
def serve():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("the web server has ended")))
    await_checks()
    print("the web server is ready", flush=True)
    signal.pause()

without_settings = None  # This fails when it says that it stops.
try:
    Supervisor(without_settings, None, web=serve, import_workers=dict).run()
except AttributeError:
    print("the next server may start")
"""
    with start(script) as supervisor:
        try:
            assert supervisor.stdout is not None
            assert supervisor.stdout.readline() == "the web server is ready\n"
            supervisor.send_signal(signal.SIGTERM)
            ended, free = supervisor.stdout.read().splitlines()
        finally:
            supervisor.kill()
    assert ended == "the web server has ended"
    assert free == "the next server may start"


def test_the_web_server_serves_only_after_the_checks_and_the_other_workers_begin_after_it() -> None:
    script = """
from app.run.server import supervisor
from app.run.server.child_processes import tell_serving

supervisor.SERVING_SECONDS = 600

def serve():
    await_checks()
    print("the web server", flush=True)
    tell_serving()
    signal.pause()

def work():
    print("a worker", flush=True)
    signal.pause()

def prepare():
    time.sleep(0.5)
    print("the checks", flush=True)

sys.exit(Supervisor(
    from_env({}), None, web=serve, import_workers=lambda: {"worker": work}, prepare=prepare
).run())
"""
    with start(script) as supervisor:
        try:
            lines = [line_of(supervisor) for _ in range(3)]
            supervisor.terminate()
            assert supervisor.wait(120) == 0
        finally:
            supervisor.kill()
    assert lines == ["the checks\n", "the web server\n", "a worker\n"]


def test_however_many_web_workers_begin_none_waits_to_tell_it() -> None:
    script = """
from app.run.server.child_processes import tell_serving

def serve():
    await_checks()
    for _ in range(1000):
        tell_serving()
    sys.exit(4)

sys.exit(Supervisor(from_env({}), None, web=serve, import_workers=dict).run())
"""
    with start(script) as supervisor:
        try:
            assert supervisor.wait(120) == 4
        finally:
            supervisor.kill()


def test_a_web_server_that_ends_before_the_checks_have_passed_is_noticed() -> None:
    script = """
prepare = partial(time.sleep, 1)
sys.exit(Supervisor(
    from_env({}), None, web=partial(sys.exit, 5), import_workers=dict, prepare=prepare
).run())
"""
    with start(script) as supervisor:
        try:
            assert supervisor.wait(120) == 5
        finally:
            supervisor.kill()


def test_a_start_that_is_refused_ends_the_web_server_before_it_serves() -> None:
    script = """
def serve():
    await_checks()
    print("serves", flush=True)

def prepare():
    raise ValueError("refused")

try:
    Supervisor(from_env({}), None, web=serve, import_workers=dict, prepare=prepare).run()
except ValueError as error:
    print(error)
"""
    with start(script) as supervisor:
        assert supervisor.communicate(timeout=120)[0] == "refused\n"


SERVING = """
import logging

from app.run.server.child_processes import RELOAD_SIGNAL

def serve():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("ended", flush=True)))
    signal.signal(RELOAD_SIGNAL, lambda *_: print("reloads", flush=True))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {RELOAD_SIGNAL})
    await_checks()
    print("ready", flush=True)
    while True:
        signal.pause()

logging.basicConfig(level="INFO", format="%(levelname)s: %(message)s")
sys.exit(Supervisor(from_env({}), None, web=serve, import_workers=dict).run())
"""


@contextmanager
def serving(*, terminal: int | None = None, begin: str = "") -> Iterator[subprocess.Popen[str]]:
    """A supervisor in a session of its own, perhaps with a controlling terminal."""
    if terminal is not None:
        begin += f"fcntl.ioctl({terminal}, termios.TIOCSCTTY, 0)\n"
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + begin + SERVING],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        pass_fds=[] if terminal is None else [terminal],
    ) as supervisor:
        try:
            assert line_of(supervisor) == "ready\n"
            yield supervisor
        finally:
            with suppress(ProcessLookupError):
                os.killpg(supervisor.pid, signal.SIGKILL)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_hangup_without_a_terminal_replaces_the_web_servers_workers() -> None:
    with serving() as supervisor:
        for _ in range(2):
            supervisor.send_signal(signal.SIGHUP)
            assert {line_of(supervisor), line_of(supervisor)} == {
                "INFO: SIGHUP: the web server replaces its workers\n",
                "reloads\n",
            }


def test_signals_without_a_meaning_are_ignored_and_logged() -> None:
    with serving() as supervisor:
        for name in ("SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM"):
            supervisor.send_signal(getattr(signal, name))
            assert line_of(supervisor) == f"INFO: {name}: ignored\n"
        supervisor.terminate()
        assert line_of(supervisor) == "INFO: SIGTERM: the server stops\n"
        assert line_of(supervisor) == "ended\n"
        assert supervisor.wait(120) == 0


@pytest.fixture
def nobody_ignores_hangups() -> Iterator[None]:
    """Not even who started the tests, with `nohup`: a server would inherit that."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def nobody_ignores_interrupts() -> Iterator[None]:
    """A shell without job control starts background commands with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("nobody_ignores_hangups")
def test_a_terminal_that_is_closed_stops_the_server() -> None:
    reader, terminal = pty.openpty()
    with serving(terminal=terminal) as supervisor:
        os.close(terminal)
        os.close(reader)
        assert line_of(supervisor) == "INFO: SIGHUP: the server stops\n"
        assert line_of(supervisor) == "ended\n"
        assert supervisor.wait(120) == 0


def test_a_server_that_was_started_with_nohup_outlives_its_terminal() -> None:
    reader, terminal = pty.openpty()
    ignore = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    with serving(terminal=terminal, begin=ignore) as supervisor:
        os.close(terminal)
        os.close(reader)
        assert {line_of(supervisor), line_of(supervisor)} == {
            "INFO: SIGHUP: the web server replaces its workers\n",
            "reloads\n",
        }
        assert supervisor.poll() is None


SOONEST_AND_LATEST = [
    (signal.SIGINT, 0.1),
    (signal.SIGTERM, 0.3),
    (signal.SIGHUP, 0.5),
    (signal.SIGTERM, 1.0),
]

EVERY_SIGNAL_AT_ANY_MOMENT = [
    (number, seconds)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for seconds in (0.1, 0.3, 0.5, 0.7, 1.0)
    if (number, seconds) not in SOONEST_AND_LATEST
]


@pytest.mark.usefixtures("nobody_ignores_hangups", "nobody_ignores_interrupts")
@pytest.mark.parametrize(
    ("number", "seconds"), [*SOONEST_AND_LATEST, *long(EVERY_SIGNAL_AT_ANY_MOMENT)]
)
def test_a_start_that_is_interrupted_ends_in_one_line(
    tmp_path: Path, number: signal.Signals, seconds: float
) -> None:
    """At any moment of the start; on a loaded machine, each may be any."""
    server = Server(tmp_path, NO_FFMPEG)
    with interrupted(server, number, seconds) as supervisor:
        if number == signal.SIGHUP:  # It means something else to a server that has started.
            wait_until(lambda: supervisor.poll() is not None or answers(server), "it has begun")
            supervisor.terminate()
        _, errors = supervisor.communicate(timeout=120)
    assert "Traceback" not in errors
    if "while starting" in errors:
        assert errors.splitlines()[-1] == f"Stopped by {number.name} while starting."
        assert supervisor.returncode == (130 if number == signal.SIGINT else -number)


@contextmanager
def interrupted(
    server: Server, number: signal.Signals, seconds: float
) -> Iterator[subprocess.Popen[str]]:
    """A server that gets a signal so long after it has begun to handle signals."""
    with subprocess.Popen(
        [sys.executable, "-m", "app.run.server.supervisor"],
        cwd=ROOT,
        env=server.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as supervisor:
        try:
            status = Path(f"/proc/{supervisor.pid}/status")
            # Python itself catches SIGINT before that.
            wait_until(lambda: caught(status) & 1 << (signal.SIGTERM - 1), "it handles signals")
            time.sleep(seconds)
            supervisor.send_signal(number)
            yield supervisor
        finally:
            with suppress(ProcessLookupError):
                os.killpg(supervisor.pid, signal.SIGKILL)


def answers(server: Server) -> bool:
    with suppress(requests.RequestException):
        return server.get("/healthz").ok
    return False


def caught(status: Path) -> int:
    """The signals that a process has handlers for; all of them once it has ended."""
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    return int(found[1], 16) if found else -1


def test_a_worker_that_is_restarted_after_an_update_runs_the_old_code(tmp_path: Path) -> None:
    file = tmp_path / "worker_to_update.py"
    file.write_text("def main(): print('old code')")
    script = f"""
sys.path.append({str(tmp_path)!r})
work = import_main("worker_to_update")
for _ in range(2):
    process = fork(work)
    process.join()
    open({str(file)!r}, "w").write("def main(): print('new and longer code')")
"""
    with start(script) as parent:
        assert parent.communicate()[0].splitlines() == ["old code"] * 2
