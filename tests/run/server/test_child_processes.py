"""A worker is restarted, ever more slowly, and never silently."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from app.run.server.child_processes import KeptRunning, Work, describe_status
from tests.waiting import wait_until

FAILS = partial(sys.exit, 3)
KILLED = partial(signal.raise_signal, signal.SIGKILL)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged about processes; threads of other tests may log something as well."""
    return [each.getMessage() for each in caplog.records if each.name == KeptRunning.__module__]


def kept_running(work: Work, settled_seconds: float) -> KeptRunning:
    """With short pauses. 0 or infinite `settled_seconds` make the speed of a start irrelevant."""

    def start() -> BaseProcess:
        process = get_context("spawn").Process(target=work)  # This process has several threads.
        process.start()
        return process

    return KeptRunning(
        start,
        name="background worker",
        first_pause_seconds=0.25,
        longest_pause_seconds=1.0,
        settled_seconds=settled_seconds,
    )


def test_a_process_that_keeps_failing_is_logged_and_restarted_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = kept_running(FAILS, settled_seconds=math.inf)

    def has_failed(times: int) -> bool:
        kept.look_after()
        return len(told(caplog)) >= times

    wait_until(lambda: has_failed(4), "it has failed four times")
    ended = "the background worker ended with status 3; restarting in"
    assert told(caplog)[:4] == [f"{ended} {pause} s" for pause in ("0.25", "0.5", "1", "1")]


def test_a_process_that_ran_long_is_restarted_soon_and_the_log_names_the_signal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = kept_running(KILLED, settled_seconds=0.0)

    def has_ended(times: int) -> bool:
        kept.look_after()
        return len(told(caplog)) >= times

    wait_until(lambda: has_ended(3), "it has ended three times")
    line = "the background worker ended with SIGKILL; restarting in 0.25 s"
    assert told(caplog)[:3] == [line] * 3


def test_a_process_that_cannot_be_started_is_tried_again_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    started: list[str] = []

    def start() -> BaseProcess:
        if len(told(caplog)) < 3:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append("now")
        return get_context("spawn").Process()

    kept = KeptRunning(start, name="background worker", first_pause_seconds=0.01)

    def has_started() -> bool:
        if not started:
            kept.look_after()
        return bool(started)

    wait_until(has_started, "it has been started")
    failed = f"the background worker could not be started: [Errno {errno.EAGAIN}] "
    assert all(line.startswith(failed) for line in told(caplog))
    pauses = [line.rpartition("; ")[2] for line in told(caplog)]
    assert pauses == [f"restarting in {pause} s" for pause in ("0.01", "0.02", "0.04")]


def test_an_exit_status_is_described_in_words() -> None:
    assert describe_status(0) == "status 0"
    assert describe_status(-signal.SIGSEGV) == "SIGSEGV"
    assert describe_status(-250) == "signal 250"


def test_the_background_worker_is_killed_before_the_web_workers_when_memory_runs_out() -> None:
    code = """from app.run.server.background_worker import be_killed_first
be_killed_first()
print(open("/proc/self/oom_score_adj").read())"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    inherited = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(result.stdout) == min(inherited + 500, 1000)


def test_a_process_that_does_not_end_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    kept = kept_running(partial(time.sleep, 600), settled_seconds=0.0)
    kept.look_after()
    kept.wait(0)
    assert told(caplog) == ["the background worker does not end, and is killed"]
