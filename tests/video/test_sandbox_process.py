"""However a program in the sandbox ends, nothing of it is left."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.video.make.sandbox import process
from app.video.make.sandbox.process import ERROR_BYTES, ROOT, Stopped, TimedOut, run
from tests.video.confined import LANDLOCK, LIMITS, Target, silent_run
from tests.waiting import wait_until


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pid_in(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), f"{file} is written")
    return int(file.read_text())


# ---- the end -------------------------------------------------------------------------------------

SLEEP = 'print(os.getpid(), file=open("pid", "w")); time.sleep(60)'


def test_an_event_stops_it(target: Target) -> None:
    stop = threading.Event()
    pids = []

    def stop_it() -> None:
        pids.append(pid_in(target.work / "pid"))
        stop.set()

    thread = threading.Thread(target=stop_it)
    thread.start()
    with pytest.raises(Stopped):
        silent_run(target.command(SLEEP), stop)
    thread.join()
    assert not Path(f"/proc/{pids[0]}").exists()  # Not even a zombie.


def test_a_time_out_kills_its_children_too(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is up once its child has begun."""
    begun = target.work / "pid"

    def clock() -> float:
        has_begun = begun.exists() and begun.read_text().endswith("\n")
        return time.monotonic() + (LIMITS.wall_seconds if has_begun else 0)

    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    body = f"""if os.fork() == 0:
    {SLEEP}
time.sleep(600)"""
    command = target.command(body, layers=LANDLOCK)  # seccomp would not let it fork.
    with pytest.raises(TimedOut):
        silent_run(command)
    wait_until(lambda: has_ended(pid_in(target.work / "pid")), "the child is gone")


def test_a_program_that_closes_its_output_is_still_timed(target: Target) -> None:
    body = "os.close(1); os.close(2); os.close(3); time.sleep(60)"
    with pytest.raises(TimedOut):
        silent_run(target.command(body, limits=replace(LIMITS, wall_seconds=1)))


def test_what_a_sink_raises_ends_it(target: Target) -> None:
    def refuse(_: bytes) -> None:
        raise ZeroDivisionError

    body = f'print("x" * 100, flush=True); {SLEEP}'
    with pytest.raises(ZeroDivisionError):
        run(target.command(body), on_output=refuse, on_report=len)


WORKER = """
import sys
from tests.video.confined import Target, silent_run
from pathlib import Path
silent_run(Target(Path(sys.argv[1])).command(sys.argv[2]))
"""


def test_it_dies_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WORKER, tmp_path, SLEEP], cwd=ROOT) as worker:
        pid = pid_in(tmp_path / "work" / "pid")
        assert not has_ended(pid)
        worker.kill()
    wait_until(lambda: has_ended(pid), "the program has ended")


def test_only_the_end_of_its_errors_is_kept(target: Target) -> None:
    body = 'sys.stderr.write("x" * 10_000_000 + "last words")'
    errors = silent_run(target.command(body)).errors
    assert len(errors) == ERROR_BYTES
    assert errors.endswith(b"last words")


def test_a_program_that_does_not_exist_is_said(target: Target) -> None:
    ended = silent_run(target.command("pass", program=Path("/nonexistent/ffmpeg")))
    assert ended.status != 0
    assert b"No such file" in ended.errors
