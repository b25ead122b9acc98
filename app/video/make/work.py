"""Builds the media worker and its steps. The web application does not import this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from app.core.errors import UploadError
from app.core.jobs import INDEX, REMUX, SOUND, Lane
from app.core.upload import UploadId
from app.video.make.alone import run_in_process, unless_long
from app.video.make.arrivals import Arrivals
from app.video.make.encoder import calibrate
from app.video.make.ffmpeg import Ffmpeg
from app.video.make.indexing import Indexing
from app.video.make.pictures import EARLY_POSTER, PICTURES, EarlyPoster, Pictures
from app.video.make.probe import HEAD_BYTES, is_no_film
from app.video.make.remux import Remux
from app.video.make.rendition_cache import RenditionCache, least_free_bytes
from app.video.make.renditions import Rendition, Segments
from app.video.make.sound import WAVEFORM, Sound, Waveform
from app.video.make.steps import Heartbeat, StepTools
from app.video.make.subtitles import SUBTITLES, SubtitlesStep
from app.video.make.sweep import MediaSweep
from app.video.make.worker import Listener, MediaWorker, Step
from app.video.serve.ladder import Capability, read_capability
from app.video.serve.renditions import EAGER_PRIORITY, RENDITION, SEGMENTS
from app.video.serve.services import MediaServices


@dataclass(frozen=True, slots=True)
class MediaWork:
    """The steps, the worker that runs them, and the calibration of this machine."""

    media: MediaServices

    def worker(self, *, name: str, tell: Listener) -> MediaWorker:
        """The worker that makes the files for players; `name` is unique to its process."""
        tools = self._tools()
        steps = {
            each: unless_long(step, run_in_process) for each, step in self._steps(tools).items()
        }
        cache = RenditionCache(
            self.media.folder,
            self.media.jobs,
            most_bytes=self.media.policy.cache_bytes,
            least_free_bytes=least_free_bytes(self.media.folder.root),
        )
        return MediaWorker(
            self.media.jobs,
            {**steps, **self._rendition_steps(tools, cache)},
            sweep=MediaSweep(
                self.media.records,
                self.media.uploads,
                folder=self.media.folder,
                clock=self.media.clock,
                has_ffmpeg=tools.ffmpeg.ffmpeg is not None,
                # Reading from a bucket would block the thread that looks for all work.
                is_no_film=(lambda _: False) if self.media.has_bucket else self._is_no_film,
                when_ready=self._make_all_qualities
                if self.media.policy.is_eager
                else lambda _: None,
            ),
            # In a bucket, a video can be read only when its upload is complete.
            look_at_arrivals=(lambda: False) if self.media.has_bucket else Arrivals(tools).look,
            make_room=partial(self._keep_up, cache, name),
            wakeup=self.media.wakeup,
            name=name,
            clock=self.media.clock,
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
            folder=self.media.folder,
            ffmpeg=Ffmpeg.find(),
            capability=self._capability,
            clock=self.media.clock,
            is_alone=is_alone,
        )

    def calibrate(self, worker: str = "") -> None:
        """Measure this machine's encoding speed, unless known; report it for this worker."""
        calibrate(Ffmpeg.find(), self.media.folder)
        if self.media.shared is not None and worker:
            self.media.shared.tell(worker)

    def _is_no_film(self, upload_id: UploadId) -> bool:
        try:
            head = self.media.source.beginning(upload_id, HEAD_BYTES)
            filename = self.media.uploads.get(upload_id).filename
            return is_no_film(head) and is_no_film(head, filename)
        except (OSError, UploadError):  # The job reports the error.
            return False

    def _keep_up(self, cache: RenditionCache, worker: str) -> None:
        cache.trim()
        if self.media.shared is not None:
            self.media.shared.tell(worker)

    def _capability(self) -> Capability | None:
        """For steps that need it: at the first start it may not be measured yet, so measure it."""
        if not self.media.policy.is_on:
            return None
        if read_capability(self.media.folder.root) is None:
            self.calibrate()
        return (
            self.media.shared()
            if self.media.shared is not None
            else read_capability(self.media.folder.root)
        )

    def _steps(self, tools: StepTools) -> Mapping[str, Step]:
        return {
            INDEX: Indexing(tools),
            SUBTITLES: SubtitlesStep(tools),
            PICTURES: Pictures(tools),
            WAVEFORM: Waveform(tools),
            SOUND: Sound(tools),
            REMUX: Remux(tools),
            EARLY_POSTER: EarlyPoster(tools),
        }

    def _rendition_steps(self, tools: StepTools, cache: RenditionCache) -> Mapping[str, Step]:
        steps: dict[str, Step] = {SEGMENTS: Segments(tools), RENDITION: Rendition(tools)}
        return {name: cache.watching(step) for name, step in steps.items()}

    def _make_all_qualities(self, upload_id: UploadId) -> None:
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
