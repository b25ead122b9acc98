"""The composition root: builds everything below the web from the settings. No Flask.

Nothing is opened here: gunicorn's workers build their own after they were forked.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from app.ingest.copy import BodyLimits
from app.records.engine import Database
from app.records.uploads import Listener, UploadRecords, no_listener
from app.settings import Settings
from app.storage.base import Durability, Inspectable
from app.storage.boot_marker import after_restart_of_machine
from app.storage.folder import disk_errors, make_private_folder
from app.storage.idle_clock import IdleClock
from app.storage.local import LocalStore
from app.uploads.client_uploads import ClientUploads
from app.uploads.completion import Completion
from app.uploads.housekeeping import Housekeeping
from app.uploads.library import VideoLibrary
from app.uploads.receiver import Receiver
from app.uploads.service import UploadService
from app.uploads.whole import WholeFiles

R = TypeVar("R", bound=Receiver)

BOOT_MARKER = "boot"
"""A file of every data folder that a server has used."""

ID_BYTES = 16
"""128 random bits: an id cannot be guessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the web application and the background worker run on."""

    settings: Settings
    uploads: UploadService
    client_uploads: ClientUploads
    whole_files: WholeFiles
    library: VideoLibrary
    housekeeping: Housekeeping
    store: Inspectable
    records: UploadRecords
    database: Database

    def prepare(self) -> None:
        """Bring the database up to date; each process calls this once before it serves."""
        with disk_errors():
            make_private_folder(self.settings.data_dir)
        self.database.migrate()
        after_restart_of_machine(
            self.settings.data_dir / BOOT_MARKER,
            Durability(self.settings.durability),
            self.housekeeping.forget_unsynced,
        )


def build_services(settings: Settings, on_upload: Listener = no_listener) -> Services:
    """All services for `settings`; `on_upload` is told of the steps that uploads take."""
    durability = Durability(settings.durability)
    database = Database(
        settings.database_url,
        # A finished file that no record tells of is as good as lost.
        synced=durability is not Durability.NONE,
        connections=settings.threads,
    )
    records = UploadRecords(database, on_upload)
    store = LocalStore(settings.staging_dir, settings.library_dir, durability)
    completion = Completion(records, store, policy=settings.policy, clock=_now)
    limits = BodyLimits(settings.body_idle_seconds, settings.min_bytes_per_second)

    def receiver(kind: type[R]) -> R:
        return kind(
            records,
            store,
            completion,
            policy=settings.policy,
            limits=limits,
            clock=_now,
            new_id=_new_id,
        )

    uploads = receiver(UploadService)
    library = VideoLibrary(records, store, policy=settings.policy, clock=_now)
    return Services(
        settings=settings,
        uploads=uploads,
        client_uploads=ClientUploads(uploads, library),
        whole_files=receiver(WholeFiles),
        library=library,
        housekeeping=Housekeeping(
            records,
            store,
            store,
            completion,
            clock=_now,
            idle_clock=IdleClock(settings.data_dir / "clock"),
            expiry=timedelta(seconds=settings.expiry_seconds),
        ),
        store=store,
        records=records,
        database=database,
    )


def _new_id() -> str:
    return secrets.token_hex(ID_BYTES)


def _now() -> datetime:
    return datetime.now(UTC)
