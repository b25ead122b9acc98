"""Puts the parts of this package together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from app.domain.errors import UploadError
from app.domain.jobs import INDEX, REMUX, SOUND, Lane
from app.domain.policy import RenditionPolicy
from app.domain.upload import UploadId
from app.media.ffmpeg.program import Ffmpeg
from app.media.film.bucket_folder import BucketFolder
from app.media.film.disk_folder import DiskFolder
from app.media.film.folder import MediaFolder
from app.media.film.signatures import HEAD_BYTES, is_no_film
from app.media.film.source import MediaSource
from app.media.jobs.heartbeat import Heartbeat
from app.media.jobs.sweep import MediaSweep
from app.media.jobs.waking import Waker, WakeupSocket
from app.media.jobs.worker import Listener, MediaWorker, Step
from app.media.playback.library import MediaLibrary
from app.media.playback.playlists import Playlists
from app.media.playback.text_files import TextFiles
from app.media.renditions.calibration import calibrate
from app.media.renditions.capability import Capability, read_capability
from app.media.renditions.offers import Renditions
from app.media.renditions.rung_cache import RungCache, least_free_bytes
from app.media.renditions.rungs import EAGER_PRIORITY, RENDITION, SEGMENTS
from app.media.renditions.segment_queue import Patience, SegmentQueue
from app.media.renditions.shared_capability import SharedCapability
from app.media.renditions.steps import Rendition, Segments
from app.media.steps.alone import run_in_process, unless_long
from app.media.steps.arrivals import Arrivals
from app.media.steps.indexing import Indexing
from app.media.steps.pictures import EARLY_POSTER, PICTURES, EarlyPoster, Pictures
from app.media.steps.remux import Remux
from app.media.steps.sound import Sound
from app.media.steps.subtitles import SUBTITLES, Subtitles
from app.media.steps.tools import StepTools
from app.media.steps.waveform import WAVEFORM, Waveform
from app.records.encoders import EncoderRecords
from app.records.engine import Database
from app.records.jobs import JobRecords
from app.records.made_files import MadeFileRecords
from app.records.media import MediaRecords, PlaybackObserver
from app.records.uploads import UploadRecords
from app.storage.base import Store
from app.storage.s3.bucket import Bucket

FOLDER = "media"
"""Where in the data folder the files made from videos are."""

COPIES_SHARE = 4
"""With a bucket, copies of made files take up to this fraction of SLUICE_SPOOL_BYTES more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaServices:
    """What the web application and the operator's commands use.

    The nodes of a fleet offer the same qualities.
    """

    library: MediaLibrary
    playlists: Playlists
    renditions: Renditions
    text_files: TextFiles
    jobs: JobRecords
    records: MediaRecords
    folder: MediaFolder
    source: MediaSource
    uploads: UploadRecords
    wakeup: WakeupSocket
    policy: RenditionPolicy
    clock: Callable[[], datetime]
    shared: SharedCapability | None
    """Between the nodes of a fleet."""
    has_bucket: bool

    @classmethod
    def build(  # noqa: PLR0913 - called by the composition root alone, with names
        cls,
        data_dir: Path,
        database: Database,
        uploads: UploadRecords,
        store: Store,
        clock: Callable[[], datetime],
        *,
        threads: int,
        policy: RenditionPolicy,
        observer: PlaybackObserver,
        bucket: Bucket | None = None,
        spool_bytes: int = 0,
    ) -> MediaServices:
        """The services of a process with this many threads; `spool_bytes` is for a bucket.

        `clock` is that of all nodes that share the database.
        """
        folder = _folder(data_dir / FOLDER, database, bucket, spool_bytes=spool_bytes, clock=clock)
        shared = _shared(database, folder, clock) if database.is_remote else None
        playlists, jobs = Playlists(folder), JobRecords(database, Waker(data_dir).wake)
        queue = SegmentQueue(jobs, patience=Patience.of_process(threads), clock=clock)
        source = MediaSource(store, folder, most_copied_bytes=spool_bytes)
        records = MediaRecords(database, observer)
        return cls(
            library=MediaLibrary(
                uploads, records, jobs, source=source, folder=folder, playlists=playlists
            ),
            playlists=playlists,
            renditions=Renditions(
                playlists,
                jobs,
                folder,
                queue=queue,
                capability=shared or _own_capability(folder),
                is_on=policy.is_on,
                clock=clock,
            ),
            text_files=TextFiles(uploads, source),
            jobs=jobs,
            records=records,
            folder=folder,
            source=source,
            uploads=uploads,
            wakeup=WakeupSocket(data_dir),
            policy=policy,
            clock=clock,
            shared=shared,
            has_bucket=bucket is not None,
        )

    def worker(self, *, name: str, tell: Listener) -> MediaWorker:
        """The worker that makes what players need; `name` is that of its process alone."""
        tools = self._tools()
        steps = {
            each: unless_long(step, run_in_process) for each, step in self._steps(tools).items()
        }
        cache = RungCache(
            self.folder,
            self.jobs,
            most_bytes=self.policy.cache_bytes,
            least_free_bytes=least_free_bytes(self.folder.root),
        )
        return MediaWorker(
            self.jobs,
            {**steps, **self._rendition_steps(tools, cache)},
            sweep=MediaSweep(
                self.records,
                self.uploads,
                folder=self.folder,
                clock=self.clock,
                has_ffmpeg=tools.ffmpeg.ffmpeg is not None,
                # A bucket would keep the thread waiting that looks for all work.
                is_no_film=(lambda _: False) if self.has_bucket else self._is_no_film,
                when_ready=self._make_all_qualities if self.policy.is_eager else lambda _: None,
            ),
            # In a bucket, a film can be read only once all of it has arrived.
            look_at_arrivals=(lambda: False) if self.has_bucket else Arrivals(tools).look,
            make_room=partial(self._keep_up, cache, name),
            wakeup=self.wakeup,
            name=name,
            clock=self.clock,
            tell=tell,
        )

    def run_step(self, upload_id: UploadId, step: str, argument: str) -> None:
        """Run the step of a claimed job in a process that does nothing else; raises as it does."""
        job = self.jobs.find(upload_id, step, argument)
        if job is not None:
            self._steps(self._tools(is_alone=True))[step](job, Heartbeat(job))

    def _tools(self, *, is_alone: bool = False) -> StepTools:
        return StepTools(
            uploads=self.uploads,
            media=self.records,
            jobs=self.jobs,
            source=self.source,
            folder=self.folder,
            ffmpeg=Ffmpeg.find(),
            capability=self._capability,
            clock=self.clock,
            is_alone=is_alone,
        )

    def calibrate(self, worker: str = "") -> None:
        """Measure how fast this machine encodes, unless known, and report it for this worker."""
        calibrate(Ffmpeg.find(), self.folder)
        if self.shared is not None and worker:
            self.shared.tell(worker)

    def _is_no_film(self, upload_id: UploadId) -> bool:
        try:
            head = self.source.beginning(upload_id, HEAD_BYTES)
            return is_no_film(head) and is_no_film(head, self.uploads.get(upload_id).filename)
        except (OSError, UploadError):  # The job tells.
            return False

    def _keep_up(self, cache: RungCache, worker: str) -> None:
        cache.trim()
        if self.shared is not None:
            self.shared.tell(worker)

    def _capability(self) -> Capability | None:
        """For steps that cannot go on without: at a first start, it is still being measured."""
        if not self.policy.is_on:
            return None
        if read_capability(self.folder.root) is None:
            self.calibrate()
        return self.shared() if self.shared is not None else read_capability(self.folder.root)

    def _steps(self, tools: StepTools) -> Mapping[str, Step]:
        return {
            INDEX: Indexing(tools),
            SUBTITLES: Subtitles(tools),
            PICTURES: Pictures(tools),
            WAVEFORM: Waveform(tools),
            SOUND: Sound(tools),
            REMUX: Remux(tools),
            EARLY_POSTER: EarlyPoster(tools),
        }

    def _rendition_steps(self, tools: StepTools, cache: RungCache) -> Mapping[str, Step]:
        steps: dict[str, Step] = {SEGMENTS: Segments(tools), RENDITION: Rendition(tools)}
        return {name: cache.watching(step) for name, step in steps.items()}

    def _make_all_qualities(self, upload_id: UploadId) -> None:
        """After everything else, in the order of the ladder."""
        self._capability()
        for rung in self.renditions.rungs(self.uploads.get(upload_id))[::-1]:
            self.jobs.enqueue(
                upload_id,
                RENDITION,
                str(rung.quality),
                lane=Lane.BACKGROUND,
                priority=EAGER_PRIORITY,
                now=self.clock(),
            )


def _folder(
    root: Path,
    database: Database,
    bucket: Bucket | None,
    *,
    spool_bytes: int,
    clock: Callable[[], datetime],
) -> MediaFolder:
    disk = DiskFolder(root)
    if bucket is None:
        return disk
    records, most_bytes = MadeFileRecords(database), spool_bytes // COPIES_SHARE
    return BucketFolder(disk, records, bucket, most_copied_bytes=most_bytes, clock=clock)


def _shared(
    database: Database, folder: MediaFolder, clock: Callable[[], datetime]
) -> SharedCapability:
    return SharedCapability(EncoderRecords(database), _own_capability(folder), clock)


def _own_capability(folder: MediaFolder) -> Callable[[], Capability | None]:
    return partial(read_capability, folder.root)
