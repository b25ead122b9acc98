"""The composition root: builds everything below the web layer from the settings. No Flask.

Nothing is opened here: gunicorn's workers build their own services after forking.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from app.domain.access import Role
from app.domain.lifecycle import UploadState
from app.identity.link_limits import LinkLimits
from app.identity.mail import Mail
from app.identity.openid import Joining, OpenIdClient
from app.identity.passwords import Passwords
from app.identity.request_rate import RequestRate
from app.identity.services import IdentityOptions, IdentityServices
from app.identity.video_expiry import VideoExpiry
from app.ingest.copy import BodyLimits
from app.ingest.line import Line, line_in
from app.media.jobs.waking import Waker
from app.media.services import MediaServices
from app.records.bucket import BucketCatalog
from app.records.clock import Clock, shared_clock
from app.records.engine import Database
from app.records.facts import Facts, SharedNote
from app.records.identity.outbox import Outbox
from app.records.identity.projects import ProjectRecords
from app.records.identity.quotas import ProjectQuotas
from app.records.identity.sender_limits import SenderLimits
from app.records.identity.upload_links import UploadLinkRecords
from app.records.nodes import NodeRecords
from app.records.transfer import require_finished
from app.records.turns import Turns
from app.records.uploads import Listener, UploadRecords, no_listener
from app.request.minute_counts import MinuteCounts, counts_in
from app.request.this_node import ThisNode, this_node
from app.settings import Settings
from app.storage.base import Durability, Inspection, Problem, Store
from app.storage.local import LocalStore
from app.storage.local.folder import disk_errors, make_private_folder
from app.storage.machine import IdleClock, NoteFile, after_restart_of_machine, read_clocks
from app.storage.s3.address import BucketAddress
from app.storage.s3.bucket import Bucket
from app.storage.s3.direct import DirectCells
from app.storage.s3.store import BucketStore
from app.uploads.chunks import Chunks
from app.uploads.client_uploads import ClientUploads
from app.uploads.completion import Completion
from app.uploads.direct import DirectUploads
from app.uploads.files import WholeFiles
from app.uploads.housekeeping import Housekeeping
from app.uploads.library import VideoLibrary
from app.uploads.service import UploadService

BOOT_MARKER = "boot"
"""A file in every data folder that a server has used."""

REQUESTS_PER_MINUTE = 6000
NEW_UPLOADS_PER_MINUTE = 1200
"""Defaults with accounts. Sixteen chunks of a fast client in parallel stay far below."""

ID_BYTES = 16
"""128 random bits: an id cannot be guessed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the web application and the workers run on."""

    settings: Settings
    uploads: UploadService
    chunks: Chunks
    direct: DirectUploads | None
    client_uploads: ClientUploads
    whole_files: WholeFiles
    library: VideoLibrary
    housekeeping: Housekeeping
    inspection: Inspection
    bucket: Bucket | None
    """Where the bytes are; None where they are in folders."""
    media: MediaServices
    identity: IdentityServices
    video_expiry: VideoExpiry
    quotas: ProjectQuotas
    request_rate: RequestRate
    line: Line | None
    counts: MinuteCounts
    records: UploadRecords
    database: Database
    node: ThisNode
    nodes: NodeRecords | None  # None where the records are in a file, which has one server.

    def problems(self) -> list[Problem]:
        """What is wrong with the set-up. Names no paths, because anyone may read it."""
        found = self.inspection.problems()
        if self.settings.is_open and not self.settings.is_local:
            detail = (
                "whoever reaches this server may watch, upload and delete everything: "
                "SLUICE_ACCESS is open"
            )
            found.append(Problem("open_to_everybody", detail, is_fatal=False))
        return found

    def prepare(self) -> None:
        """Bring the database up to date; each process calls this once before it serves."""
        with disk_errors():
            make_private_folder(self.settings.data_dir)
        self.database.migrate()
        require_finished(self.database)
        after_restart_of_machine(
            self.settings.data_dir / BOOT_MARKER,
            _durability(self.settings),
            self.housekeeping.forget_unsynced,
        )


def build_services(
    settings: Settings, on_upload: Listener = no_listener, *, passwords: Passwords | None = None
) -> Services:
    """All services for `settings`; `on_upload` is called with each step of an upload.

    `passwords` are by default as costly to guess as they should be.
    """
    database = _database(settings)
    clock = shared_clock(database, _now)
    links = LinkLimits(UploadLinkRecords(database), _now)
    quotas = ProjectQuotas(database)
    counts = counts_in(settings.data_dir, is_fleet=database.is_remote)
    outbox = Outbox(_now, _new_id)
    limits = _sender_limits(settings, counts)
    observers = [quotas.observe, links.observe, limits.observe, outbox.on_upload]
    records = UploadRecords(database, _and_wake(Waker(settings.data_dir), on_upload), observers)
    bucket = Bucket.at(_address(settings)) if settings.storage else None
    store = _store(settings, database, bucket, clock)
    completion = Completion(records, store, policy=settings.policy, clock=clock)
    uploads = _uploads(settings, records, store, completion=completion, links=links)
    chunks = _chunks(settings, records, store, completion=completion, quotas=quotas, links=links)
    library = _library(settings, records, store, clock)
    identity = _identity(settings, database, counts=counts, passwords=passwords or Passwords())
    return Services(
        settings=settings,
        uploads=uploads,
        chunks=chunks,
        direct=_direct(settings, store, chunks),
        client_uploads=ClientUploads(uploads, chunks, library),
        whole_files=_whole_files(
            settings, records, store, completion=completion, quotas=quotas, links=links
        ),
        library=library,
        housekeeping=_housekeeping(settings, database, records, store, completion),
        inspection=store.inspection,
        bucket=bucket,
        media=_media(settings, database, records, store, outbox=outbox, bucket=bucket),
        identity=identity,
        video_expiry=VideoExpiry(ProjectRecords(database), records, library, identity.audit),
        quotas=quotas,
        request_rate=_request_rate(settings, counts),
        line=_line(settings, is_fleet=database.is_remote),
        counts=counts,
        records=records,
        database=database,
        node=this_node(settings.data_dir),
        nodes=NodeRecords(database) if database.is_remote else None,
    )


def _uploads(
    settings: Settings,
    records: UploadRecords,
    store: Store,
    *,
    completion: Completion,
    links: LinkLimits,
) -> UploadService:
    return UploadService(
        records,
        store,
        completion=completion,
        policy=settings.policy,
        clock=completion.clock,
        new_id=_new_id,
        allowance=links.allowance,
    )


def _library(
    settings: Settings, records: UploadRecords, store: Store, clock: Clock
) -> VideoLibrary:
    return VideoLibrary(
        records,
        store.library,
        policy=settings.policy,
        clock=clock,
        let_group_read=store.library.let_group_read if isinstance(store, LocalStore) else None,
        sign_url=store.library.sign_url if isinstance(store, BucketStore) else None,
    )


def _line(settings: Settings, *, is_fleet: bool) -> Line | None:
    total, cap = settings.bytes_per_second, settings.bytes_per_second_per_sender
    return line_in(settings.data_dir, total=total, cap=cap, is_fleet=is_fleet)


def _request_rate(settings: Settings, counts: MinuteCounts) -> RequestRate:
    limit = settings.per_minute(settings.requests_per_minute, REQUESTS_PER_MINUTE)
    return RequestRate(counts, per_minute=limit)


def _sender_limits(settings: Settings, counts: MinuteCounts) -> SenderLimits:
    return SenderLimits(
        counts,
        per_minute=settings.per_minute(settings.new_uploads_per_minute, NEW_UPLOADS_PER_MINUTE),
        max_uploads=settings.max_uploads_per_sender,
        max_reserved_bytes=settings.max_reserved_bytes_per_sender,
    )


def _chunks(
    settings: Settings,
    records: UploadRecords,
    store: Store,
    *,
    completion: Completion,
    quotas: ProjectQuotas,
    links: LinkLimits,
) -> Chunks:
    return Chunks(
        records,
        store.staging,
        completion=completion,
        policy=settings.policy,
        quotas=quotas,
        limits=BodyLimits(settings.body_idle_seconds, settings.min_bytes_per_second),
        clock=completion.clock,
        allowance=links.allowance,
    )


def _direct(settings: Settings, store: Store, chunks: Chunks) -> DirectUploads | None:
    if not settings.direct_uploads or not isinstance(store, BucketStore):
        return None
    return DirectUploads(DirectCells(store.cells), chunks, origin=_address(settings).origin)


def _whole_files(
    settings: Settings,
    records: UploadRecords,
    store: Store,
    *,
    completion: Completion,
    quotas: ProjectQuotas,
    links: LinkLimits,
) -> WholeFiles:
    return WholeFiles(
        records,
        store,
        completion=completion,
        policy=settings.policy,
        quotas=quotas,
        limits=BodyLimits(settings.body_idle_seconds, settings.min_bytes_per_second),
        clock=completion.clock,
        new_id=_new_id,
        allowance=links.allowance,
    )


def _and_wake(waker: Waker, on_upload: Listener) -> Listener:
    """Also wake the media worker when a file was published."""

    def tell(step: str) -> None:
        on_upload(step)
        if step == UploadState.COMPLETE:
            waker.wake()

    return tell


def _database(settings: Settings) -> Database:
    # A finished file without a record is as good as lost.
    synced = Durability(settings.durability) is not Durability.NONE
    return Database(settings.records_url, synced=synced, connections=settings.threads)


def _store(
    settings: Settings, database: Database, bucket: Bucket | None, clock: Clock
) -> LocalStore | BucketStore:
    if bucket is None:
        durability = Durability(settings.durability)
        return LocalStore(settings.staging_dir, settings.library_dir, durability)
    catalog = BucketCatalog(database, clock)
    return BucketStore(bucket, catalog, settings.staging_dir, spool_bytes=settings.spool_bytes)


def _address(settings: Settings) -> BucketAddress:
    endpoint, region = settings.s3_endpoint, settings.s3_region
    return BucketAddress.of(settings.storage, endpoint=endpoint, region=region)


def _durability(settings: Settings) -> Durability:
    """A bucket has what it has confirmed, whatever happens to this machine."""
    return Durability.CHUNK if settings.storage else Durability(settings.durability)


def _identity(
    settings: Settings, database: Database, *, counts: MinuteCounts, passwords: Passwords
) -> IdentityServices:
    options = IdentityOptions(
        is_open=settings.is_open,
        audit_kept=timedelta(seconds=settings.audit_seconds),
        has_passwords=settings.passwords,
        project_quota=settings.project_quota_bytes or None,
        has_passkeys=settings.passkeys,
        openid=_openid_client(settings),
        joining=Joining(
            domains=settings.oidc_domains,
            groups=settings.oidc_groups,
            role=Role(settings.oidc_role),
        ),
        has_private_webhooks=settings.webhook_private,
        mail=Mail(settings.smtp_url, settings.mail_from),
    )
    return IdentityServices.build(
        database,
        settings.data_dir,
        options,
        passwords=passwords,
        counts=counts,
        clock=_now,
        new_id=_new_id,
    )


def _openid_client(settings: Settings) -> OpenIdClient | None:
    if not settings.oidc_issuer:
        return None
    return OpenIdClient(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        name=settings.oidc_name,
        asks_groups=bool(settings.oidc_groups),
    )


def _media(
    settings: Settings,
    database: Database,
    records: UploadRecords,
    store: Store,
    *,
    outbox: Outbox,
    bucket: Bucket | None,
) -> MediaServices:
    return MediaServices.build(
        settings.data_dir,
        database,
        records,
        store,
        _now,
        threads=settings.threads,
        policy=settings.rendition_policy,
        observer=outbox.on_playback,
        bucket=bucket,
        spool_bytes=settings.spool_bytes,
    )


def _housekeeping(
    settings: Settings,
    database: Database,
    records: UploadRecords,
    store: LocalStore | BucketStore,
    completion: Completion,
) -> Housekeeping:
    is_shared, file = database.is_remote, settings.data_dir / "clock"
    note = SharedNote(Facts(database), file.name) if is_shared else NoteFile(file)
    return Housekeeping(
        records,
        store,
        completion=completion,
        clock=completion.clock,
        idle_clock=IdleClock(note, partial(read_clocks, completion.clock)),
        turns=Turns(database),
        expiry=timedelta(seconds=settings.expiry_seconds),
        reservation=None if settings.is_open else timedelta(seconds=settings.reservation_seconds),
        collect_garbage=store.inspection.sweep if isinstance(store, BucketStore) else None,
    )


def _new_id() -> str:
    return secrets.token_hex(ID_BYTES)


def _now() -> datetime:
    return datetime.now(UTC)
