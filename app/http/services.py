"""All services of a process, and its preparation before it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.access.senders import RequestRate
from app.access.services import IdentityServices
from app.access.video_expiry import VideoExpiry
from app.db.context import Context
from app.db.engine import Database
from app.db.nodes import NodeRecords
from app.db.this_node import ThisNode
from app.db.transfer import require_finished
from app.ingest.bandwidth import Line
from app.records.uploads import UploadRecords
from app.settings import Settings
from app.storage.base import Inspection, SetupProblem, Store, durability_in
from app.storage.local.folder import disk_errors, make_private_folder
from app.storage.machine import after_restart_of_machine
from app.uploads.chunks import Chunks
from app.uploads.client_uploads import ClientUploads
from app.uploads.completion import Completion
from app.uploads.direct import DirectUploads
from app.uploads.files import WholeFiles
from app.uploads.housekeeping import Housekeeping
from app.uploads.library import VideoLibrary
from app.uploads.quotas import ProjectQuotas
from app.uploads.service import UploadService
from app.uploads.storage_identity import StorageIdentity
from app.video.serve.services import MediaServices

if TYPE_CHECKING:
    from app.storage.s3.bucket import Bucket

BOOT_MARKER = "boot"
"""A file in every data folder that a server has used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that the web application and the workers use."""

    context: Context
    store: Store
    completion: Completion
    uploads: UploadService
    chunks: Chunks
    direct: DirectUploads | None
    client_uploads: ClientUploads
    whole_files: WholeFiles
    library: VideoLibrary
    housekeeping: Housekeeping
    bucket: Bucket | None
    """The bucket that stores the bytes; None if they are in folders."""
    storage_identity: StorageIdentity
    media: MediaServices
    identity: IdentityServices
    video_expiry: VideoExpiry
    quotas: ProjectQuotas
    request_rate: RequestRate
    line: Line | None
    records: UploadRecords
    node: ThisNode
    nodes: NodeRecords | None  # None if the records are in a file, which has one server.

    @property
    def settings(self) -> Settings:
        """Those of the context; a view has them as `ctx.settings`."""
        return self.context.settings

    @property
    def database(self) -> Database:
        """That of the context; a view has it as `ctx.database`."""
        return self.context.database

    @property
    def inspection(self) -> Inspection:
        """The store's files and problems."""
        return self.store.inspection

    def problems(self) -> list[SetupProblem]:
        """Problems of the set-up. They name no paths, because anyone may read them."""
        found = self.inspection.problems()
        if self.settings.is_open and not self.settings.is_local:
            detail = (
                "anyone who reaches this server may watch, upload and delete everything: "
                "SLUICE_ACCESS is open"
            )
            found.append(SetupProblem("open_to_everybody", detail, is_fatal=False))
        return found

    def prepare(self) -> None:
        """Migrate the database; each process calls this once before anything else."""
        with disk_errors():
            make_private_folder(self.settings.data_dir)
        self.database.migrate()
        require_finished(self.database)

    def prepare_storage(self) -> None:
        """After `prepare`, once for all processes of a server; raises `WrongStorage`."""
        # First: with the wrong storage, bytes that are safe would be recorded as lost.
        self.storage_identity.require()
        self.media.prepare()
        is_in_folders = self.bucket is None
        after_restart_of_machine(
            self.settings.data_dir / BOOT_MARKER,
            durability_in(self.settings),
            self.housekeeping.forget_unsynced if is_in_folders else _forget_nothing,
        )


def _forget_nothing() -> None:
    """Does nothing: a bucket keeps confirmed bytes when a machine restarts."""
