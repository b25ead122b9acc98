"""Builds the services of this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from app.core.policy import RenditionPolicy
from app.db.context import Context
from app.db.jobs import JobRecords
from app.db.waking import Waker, WakeupSocket
from app.records.uploads import UploadRecords
from app.storage.base import Store
from app.video.serve.adoption import adopt_files
from app.video.serve.derived_files import DerivedFiles
from app.video.serve.derived_objects import FolderObjects, Objects
from app.video.serve.ladder import Capability, SharedCapability, read_capability
from app.video.serve.library import MediaLibrary, TextFiles
from app.video.serve.playlists import Playlists
from app.video.serve.renditions import Renditions, WaitTimeout
from app.video.serve.rows import MediaRecords, PlaybackObserver
from app.video.serve.scratch import ScratchSpace
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
    files: DerivedFiles
    source: MediaSource
    uploads: UploadRecords
    wakeup: WakeupSocket
    policy: RenditionPolicy
    clock: Callable[[], datetime]
    shared: SharedCapability | None
    """Capability of the nodes of a fleet; None with a local database."""
    has_bucket: bool

    @classmethod
    def build(
        cls,
        ctx: Context,
        uploads: UploadRecords,
        store: Store,
        *,
        observer: PlaybackObserver,
        bucket: Bucket | None,
    ) -> MediaServices:
        """The services of a process; the clock of `ctx` is shared by all nodes."""
        settings, database, clock = ctx.settings, ctx.database, ctx.clock
        files = _derived_files(ctx, bucket)
        source = MediaSource(store, files, most_copied_bytes=settings.spool_bytes)
        records = MediaRecords(database, observer)
        jobs = JobRecords(database, Waker(settings.data_dir).wake)
        playlists = Playlists(files)
        own: Callable[[], Capability | None] = partial(read_capability, files.scratch.root)
        shared = SharedCapability(database, own, clock) if database.is_remote else None
        return cls(
            library=MediaLibrary(
                uploads=uploads,
                media=records,
                jobs=jobs,
                source=source,
                files=files,
                playlists=playlists,
            ),
            playlists=playlists,
            renditions=Renditions(
                playlists=playlists,
                jobs=jobs,
                files=files,
                timeout=WaitTimeout.of_process(settings.threads),
                capability=shared or own,
                is_on=settings.rendition_policy.is_on,
                clock=clock,
            ),
            text_files=TextFiles(uploads, source),
            jobs=jobs,
            records=records,
            files=files,
            source=source,
            uploads=uploads,
            wakeup=WakeupSocket(settings.data_dir),
            policy=settings.rendition_policy,
            clock=clock,
            shared=shared,
            has_bucket=bucket is not None,
        )

    def prepare(self) -> None:
        """Once for all processes of a server, before it makes or serves files."""
        if isinstance(self.files.objects, FolderObjects):
            adopt_files(self.files, self.files.objects)


def _derived_files(ctx: Context, bucket: Bucket | None) -> DerivedFiles:
    folder = ctx.settings.data_dir / FOLDER
    objects: Objects
    if bucket is None:
        scratch = ScratchSpace(folder)
        objects = FolderObjects(folder)
    else:
        from app.video.serve.bucket_objects import COPIES, BucketObjects, Copies  # noqa: PLC0415 - only with a bucket

        copies = Copies(folder / COPIES, ctx.settings.spool_bytes // COPIES_SHARE)
        scratch = ScratchSpace(folder, make_room=copies.remove_all)
        objects = BucketObjects(bucket, copies, scratch)
    return DerivedFiles(database=ctx.database, objects=objects, scratch=scratch, clock=ctx.clock)
