"""Builds the steps of media jobs, and runs a long step in a process of its own.

The web application does not import this module.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.core.errors import NoRoom, ServerBusy, UploadError, UploadGone, UploadNotFound
from app.core.jobs import INDEX, REMUX, SOUND, Heartbeat, Job, JobFailed, Lane, Step
from app.core.upload import UploadId
from app.video.index.boxes import LongIndex
from app.video.make.encoder import calibrate
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.indexing import SUBTITLES, index, write_subtitles
from app.video.make.jobs import Listener, MediaJobs
from app.video.make.pictures import EARLY_POSTER, PICTURES, make_early_poster, make_pictures
from app.video.make.probe import HEAD_BYTES, is_no_video
from app.video.make.remux import remux
from app.video.make.renditions import (
    RenditionCache,
    RenditionMakers,
    encode_segments,
    encode_video,
    least_free_bytes,
)
from app.video.make.sandbox.process import ROOT
from app.video.make.sound import WAVEFORM, encode_sound, make_waveform
from app.video.make.steps import StepTools, make_way
from app.video.make.sweep import Arrivals, MediaSweep
from app.video.serve.ladder import Capability, read_capability
from app.video.serve.renditions import EAGER_PRIORITY, RENDITION, SEGMENTS
from app.video.serve.services import MediaServices


@dataclass(frozen=True, slots=True)
class MediaWork:
    """The steps, what finds videos that need them, and the calibration of this machine."""

    media: MediaServices

    def jobs(self, *, name: str, tell: Listener) -> MediaJobs:
        """What makes the files for players in the worker with this name."""
        tools = self._tools()
        steps = {
            each: unless_long(step, run_in_process) for each, step in self._steps(tools).items()
        }
        cache = RenditionCache(
            self.media.files,
            self.media.jobs,
            most_bytes=self.media.policy.cache_bytes,
            least_free_bytes=least_free_bytes(self.media.files.scratch.root),
        )
        return MediaJobs(
            steps={
                **steps,
                SEGMENTS: cache.watching(partial(encode_segments, RenditionMakers(tools))),
                RENDITION: cache.watching(partial(encode_video, RenditionMakers(tools))),
            },
            sweep=MediaSweep(
                media=self.media.records,
                uploads=self.media.uploads,
                files=self.media.files,
                clock=self.media.clock,
                has_ffmpeg=tools.ffmpeg.ffmpeg is not None,
                # Reading from a bucket would block the thread that polls for all work.
                is_no_video=(lambda _: False) if self.media.has_bucket else self._is_no_video,
                when_ready=self._queue_all_renditions
                if self.media.policy.is_eager
                else lambda _: None,
            ),
            look_at_arrivals=Arrivals(tools).look,
            make_room=partial(self._keep_up, cache, name),
            wake=self.media.wakeup.notify,
            tell=tell,
        )

    def run_step(self, upload_id: UploadId, step: str, argument: str) -> None:
        """Run a claimed job's step; this process does nothing else. Raises like the step."""
        job = self.media.jobs.find(upload_id, step, argument)
        if job is not None:
            self._steps(self._tools(is_alone=True))[step](job, Heartbeat(job))

    def _tools(self, *, is_alone: bool = False) -> StepTools:
        return StepTools(
            uploads=self.media.uploads,
            media=self.media.records,
            jobs=self.media.jobs,
            source=self.media.source,
            files=self.media.files,
            ffmpeg=Ffmpeg.find(),
            capability=self._capability,
            clock=self.media.clock,
            is_alone=is_alone,
        )

    def calibrate(self, worker: str = "") -> None:
        """Measure this machine's encoding speed, unless known; report it for this worker."""
        calibrate(Ffmpeg.find(), self.media.files.scratch)
        if self.media.shared is not None and worker:
            self.media.shared.report(worker)

    def _is_no_video(self, upload_id: UploadId) -> bool:
        try:
            head = self.media.source.beginning(upload_id, HEAD_BYTES)
            filename = self.media.uploads.get(upload_id).filename
            return is_no_video(head) and is_no_video(head, filename)
        except (OSError, UploadError):  # The job reports the error.
            return False

    def _keep_up(self, cache: RenditionCache, worker: str) -> None:
        cache.trim()
        if self.media.shared is not None:
            self.media.shared.report(worker)

    def _capability(self) -> Capability | None:
        """For steps that need it: at the first start it may not be measured yet, so measure it."""
        if not self.media.policy.is_on:
            return None
        if read_capability(self.media.files.scratch.root) is None:
            self.calibrate()
        return self.media.renditions.capability()

    def _steps(self, tools: StepTools) -> Mapping[str, Step]:
        return {
            INDEX: partial(index, tools),
            SUBTITLES: partial(write_subtitles, tools),
            PICTURES: partial(make_pictures, tools),
            WAVEFORM: partial(make_waveform, tools),
            SOUND: partial(encode_sound, tools),
            REMUX: partial(remux, tools),
            EARLY_POSTER: partial(make_early_poster, tools),
        }

    def _queue_all_renditions(self, upload_id: UploadId) -> None:
        """Queue all renditions after everything else, in the order of the ladder."""
        self._capability()
        for rendition in self.media.renditions.formats(self.media.uploads.get(upload_id))[::-1]:
            self.media.jobs.enqueue(
                upload_id,
                RENDITION,
                str(rendition.quality),
                lane=Lane.BACKGROUND,
                priority=EAGER_PRIORITY,
                now=self.media.clock(),
            )


# ---- long steps ----------------------------------------------------------------------------------

# Runs steps with a long index in a separate process, which may be killed.
#
# Memory and CPU time of a thread cannot be limited, and long tables hold the interpreter lock,
# which blocks all other threads of a process.


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
    """Wraps a step: `run_alone` runs it for videos with an index too long for this process."""

    def attempt(job: Job, beat: Heartbeat) -> object:
        try:
            return step(job, beat)
        except LongIndex as error:
            make_way(job, error)
        return run_alone(job, beat)

    return attempt


def run_in_process(job: Job, beat: Heartbeat) -> None:
    """Run the step of a claimed job in a separate process; raises the errors of the step."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        [*_COMMAND, str(os.getpid()), job.upload_id, job.kind, job.argument],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        output = None
        try:
            while output is None:
                try:
                    output, _ = process.communicate(timeout=POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    beat.go_on()
        finally:
            process.kill()  # Its ffmpeg processes end with it.
    status = process.returncode
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
    found: dict[str, object]
    try:
        act()
    except JobFailed as error:
        code, detail = error.problem.code, error.problem.detail
        found = {"ended": "failed", "code": code, "detail": detail, "is_final": error.is_final}
    except MemoryError:
        code, detail = TOO_LONG
        found = {"ended": "failed", "code": code, "detail": detail, "is_final": True}
    except (UploadGone, UploadNotFound) as error:
        found = {"ended": "failed", "code": error.code, "detail": str(error), "is_final": True}
    except UploadError as error:
        found = {"ended": "postponed", "code": error.code, "detail": str(error)}
    else:
        found = {"ended": "done"}
    return json.dumps(found)
