"""The supervisor with processes that are quick to start; tests/e2e has it with the real ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.live_server import ROOT

BEGIN = """
import os, signal, sys, time
from functools import partial
from app.server.child_processes import fork, import_main
from app.server.supervisor import WORKERS, Supervisor
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
workers = {"media worker": partial(time.sleep, 600)}
sys.exit(Supervisor(from_env({}), None, web=partial(sys.exit, 3), workers=workers).run())
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
    print("the web server is ready", flush=True)
    signal.pause()

without_settings = None  # This fails when it says that it stops.
try:
    Supervisor(without_settings, None, web=serve, workers={}).run()
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
