"""Runs steps with a long index in a separate process, which may be killed.

Memory and CPU time of a thread cannot be limited, and long tables hold the interpreter lock, which
blocks all other threads of a process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from app.core.errors import NoRoom, ServerBusy, UploadError, UploadGone, UploadNotFound
from app.core.jobs import Job, JobFailed
from app.video.index.boxes import LongIndex
from app.video.make.sandbox.process import ROOT
from app.video.make.steps import Heartbeat, make_way
from app.video.make.worker import Step

CPU_SECONDS = 60
"""Limit of such a process, without its ffmpeg processes. The longest index takes 10 to 20."""

MEMORY_BYTES = 1 << 30
"""Limit of such a process, likewise. The longest index takes 600 MB."""

TOO_LONG = (
    "index_too_long",
    "The server cannot read the index of this video: it takes too much time or memory.",
)

POLL_SECONDS = 0.2
"""How often the step checks whether its job is lost."""

_COMMAND = [sys.executable, "-m", "app.run.server.media_step"]


def unless_long(step: Step, run_alone: Step) -> Step:
    """Wraps a step: `run_alone` runs it for videos with an index too long for the media worker."""

    def attempt(job: Job, beat: Heartbeat) -> None:
        try:
            return step(job, beat)
        except LongIndex as error:
            make_way(job, error)
        return run_alone(job, beat)

    return attempt


def run_in_process(job: Job, beat: Heartbeat) -> None:
    """Run the step of a claimed job in a separate process; raises the errors of the step."""
    status, output = _run([job.upload_id, job.step, job.argument], beat)
    if status == -signal.SIGXCPU:
        raise JobFailed(*TOO_LONG, is_final=True)
    if status < 0:
        raise JobFailed("interrupted", f"The server's process was killed (signal {-status}).")
    if status:
        raise RuntimeError(f"the process of a step ended with status {status}")
    found: dict[str, Any] = json.loads(output)
    if found["ended"] == "failed":
        raise JobFailed(found["code"], found["detail"], is_final=found["is_final"])
    if found["ended"] == "postponed":
        raise (NoRoom if found["code"] == NoRoom.code else ServerBusy)(found["detail"])


def _run(arguments: list[str], beat: Heartbeat) -> tuple[int, bytes]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        [*_COMMAND, str(os.getpid()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    beat.go_on()
                else:
                    return process.returncode, output
        finally:
            process.kill()  # Its ffmpeg processes end with it.


def limit_this_process() -> None:
    """Set the limits of this process; ffmpeg has its own limits."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, most in ((resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_DATA, MEMORY_BYTES)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(
            kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
        )


def outcome_of(act: Callable[[], object]) -> str:
    """Run a step, and return its outcome as JSON for `run_in_process`."""
    try:
        with _as_job_failed():
            act()
    except JobFailed as error:
        code, detail = error.problem.code, error.problem.detail
        found = {"ended": "failed", "code": code, "detail": detail, "is_final": error.is_final}
    except UploadError as error:
        found = {"ended": "postponed", "code": error.code, "detail": str(error)}
    else:
        found = {"ended": "done"}
    return json.dumps(found)


@contextmanager
def _as_job_failed() -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise JobFailed(*TOO_LONG, is_final=True) from error
    except (UploadGone, UploadNotFound) as error:
        raise JobFailed(error.code, str(error), is_final=True) from error
