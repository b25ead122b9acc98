"""Puts the parts of this package together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from app.domain.jobs import INDEX
from app.media.arrivals import Arrivals
from app.media.ffmpeg import Ffmpeg
from app.media.folder import MediaFolder
from app.media.indexing import Indexing
from app.media.library import MediaLibrary
from app.media.pictures import PICTURES, Pictures
from app.media.settling import Settling
from app.media.source import MediaSource
from app.media.subtitles import SUBTITLES, Subtitles
from app.media.sweep import MediaSweep
from app.media.waking import Bell, Waker
from app.media.waveform import WAVEFORM, Waveform
from app.media.worker import Listener, MediaWorker, Step
from app.records.engine import Database
from app.records.jobs import JobRecords
from app.records.media import MediaRecords
from app.records.uploads import UploadRecords
from app.storage.base import Store

FOLDER = "media"
"""Where in the data folder the files made from videos are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaServices:
    """What the web and the operator's commands use."""

    library: MediaLibrary
    jobs: JobRecords
    records: MediaRecords
    folder: MediaFolder
    source: MediaSource
    uploads: UploadRecords
    bell: Bell
    clock: Callable[[], datetime]

    @classmethod
    def build(
        cls,
        data_dir: Path,
        database: Database,
        uploads: UploadRecords,
        store: Store,
        clock: Callable[[], datetime],
    ) -> MediaServices:
        """All of them, for files below `data_dir`."""
        folder = MediaFolder(data_dir / FOLDER)
        source = MediaSource(store, folder)
        records = MediaRecords(database)
        return cls(
            library=MediaLibrary(uploads, records, source, folder),
            jobs=JobRecords(database, Waker(data_dir).wake),
            records=records,
            folder=folder,
            source=source,
            uploads=uploads,
            bell=Bell(data_dir),
            clock=clock,
        )

    def worker(self, *, name: str, tell: Listener) -> MediaWorker:
        """The worker that makes what players need; `name` is that of its process alone."""
        return MediaWorker(
            self.jobs,
            self._steps(),
            sweep=MediaSweep(self.records, self.uploads, folder=self.folder, clock=self.clock),
            look_at_arrivals=Arrivals(
                self.uploads,
                self.records,
                source=self.source,
                folder=self.folder,
                clock=self.clock,
            ).look,
            bell=self.bell,
            name=name,
            clock=self.clock,
            tell=tell,
        )

    def _steps(self) -> Mapping[str, Step]:
        indexing = Indexing(
            self.uploads,
            self.records,
            self.jobs,
            source=self.source,
            folder=self.folder,
            clock=self.clock,
        )
        ffmpeg = Ffmpeg.find()
        files = (self.uploads, self.source, self.folder)
        steps: dict[str, Step] = {
            INDEX: indexing,
            SUBTITLES: Subtitles(*files),
            PICTURES: Pictures(*files, ffmpeg),
            WAVEFORM: Waveform(*files, ffmpeg),
        }
        settling = Settling(self.jobs, self.records, clock=self.clock)
        return {name: settling.after(step) for name, step in steps.items()}
