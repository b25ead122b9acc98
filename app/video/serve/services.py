"""Builds the services of this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.core.policy import RenditionPolicy
from app.db.engine import Database
from app.db.jobs import JobRecords
from app.db.waking import Waker, WakeupSocket
from app.records.uploads import UploadRecords
from app.storage.base import Store
from app.video.serve.folder import DiskFolder, MediaFolder
from app.video.serve.ladder import Capability, SharedCapability, read_capability
from app.video.serve.library import MediaLibrary, TextFiles
from app.video.serve.playlists import Playlists
from app.video.serve.renditions import Renditions, WaitTimeout
from app.video.serve.rows import MediaRecords, PlaybackObserver
from app.video.serve.source import MediaSource

if TYPE_CHECKING:
    from app.storage.s3.bucket import Bucket

FOLDER = "media"
"""Folder of derived files, in the data folder."""

COPIES_SHARE = 4
"""With a bucket, copies of derived files may use an additional 1/4 of SLUICE_SPOOL_BYTES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaServices:
    """Services for the web application and the operator's commands.

    All nodes of a fleet offer the same renditions.
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
    """Capability of the nodes of a fleet; None with a local database."""
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

        `clock` is shared by all nodes of the database.
        """
        folder: MediaFolder = (disk := DiskFolder(data_dir / FOLDER))
        if bucket is not None:
            from app.video.serve.bucket_folder import BucketFolder, MadeFileRecords  # noqa: PLC0415 - only with a bucket

            folder = BucketFolder(
                disk,
                MadeFileRecords(database),
                bucket,
                most_copied_bytes=spool_bytes // COPIES_SHARE,
                clock=clock,
            )
        own: Callable[[], Capability | None] = partial(read_capability, folder.root)
        shared = SharedCapability(database, own, clock)
        playlists, jobs = Playlists(folder), JobRecords(database, Waker(data_dir).wake)
        source = MediaSource(store, folder, most_copied_bytes=spool_bytes)
        records = MediaRecords(database, observer)
        return cls(
            library=MediaLibrary(
                uploads=uploads,
                media=records,
                jobs=jobs,
                source=source,
                folder=folder,
                playlists=playlists,
            ),
            playlists=playlists,
            renditions=Renditions(
                playlists=playlists,
                jobs=jobs,
                folder=folder,
                timeout=WaitTimeout.of_process(threads),
                capability=shared if database.is_remote else own,
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
            shared=shared if database.is_remote else None,
            has_bucket=bucket is not None,
        )
