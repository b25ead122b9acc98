"""The supervisor with processes that are quick to start; tests/e2e has it with the real ones."""

from __future__ import annotations

import subprocess
import sys

from tests.live_server import ROOT

BEGIN = """
import os, signal, sys, time
from functools import partial
from app.server.supervisor import Supervisor
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
