"""The background worker is started again, ever more slowly, and never without a word."""

from __future__ import annotations

import signal
import sys

import pytest

from app.server import child_processes
from app.server.child_processes import KeptRunning, describe_status
from tests.waiting import wait_until

FAILS = [sys.executable, "-c", "raise SystemExit(3)"]
KILLED = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "FIRST_PAUSE_SECONDS", 0.25)
    monkeypatch.setattr(child_processes, "LONGEST_PAUSE_SECONDS", 1.0)


@pytest.mark.usefixtures("pauses")
def test_a_process_that_keeps_failing_is_logged_and_started_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # No start takes as long as this on the busiest machine: the process never counts as settled.
    monkeypatch.setattr(KeptRunning, "_has_settled", lambda _: False)
    kept = KeptRunning(FAILS)

    def has_failed(times: int) -> bool:
        kept.look_after()
        return len(caplog.messages) >= times

    wait_until(lambda: has_failed(4), "it has failed four times")
    ended = "the background worker ended with status 3; restarting in"
    assert caplog.messages[:4] == [f"{ended} {pause} s" for pause in ("0.25", "0.5", "1", "1")]


@pytest.mark.usefixtures("pauses")
def test_one_that_lived_for_long_is_started_soon_and_the_signal_that_ended_it_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(KeptRunning, "_has_settled", lambda _: True)
    kept = KeptRunning(KILLED)

    def has_ended(times: int) -> bool:
        kept.look_after()
        return len(caplog.messages) >= times

    wait_until(lambda: has_ended(3), "it has ended three times")
    line = "the background worker ended with SIGKILL; restarting in 0.25 s"
    assert caplog.messages[:3] == [line] * 3


def test_a_status_is_told_in_words() -> None:
    assert describe_status(0) == "status 0"
    assert describe_status(-signal.SIGSEGV) == "SIGSEGV"
    assert describe_status(-250) == "signal 250"
