"""Builds all services from the settings: the composition root.

First what several services share, then uploads. `app/access/services.py` builds the services of
people and links, `app/video/serve/services.py` those of videos.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from app.access import webhooks
from app.access.passwords import Passwords
from app.access.senders import RequestRate, SenderLimits
from app.access.services import IdentityServices
from app.access.signing import OLD_SECRET, Signing
from app.access.upload_links import LinkLimits
from app.access.video_expiry import VideoExpiry
from app.core.lifecycle import GONE, UploadState
from app.db.context import Context
from app.db.engine import Database
from app.db.minute_counts import counts_in
from app.db.nodes import Clock, NodeRecords, SharedNote, SharedValues, shared_clock, utc_now
from app.db.this_node import this_node
from app.db.waking import Waker
from app.http.services import Services
from app.ingest.bandwidth import line_in
from app.ingest.copy import BodyLimits
from app.records.uploads import Listener, UploadRecords, no_listener
from app.settings import Settings
from app.storage.base import Durability, Store, durability_in
from app.storage.local import LocalStore
from app.storage.machine import IdleClock, NoteFile, read_clocks
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
    from app.storage.s3.bucket import Bucket, BucketMark


ID_BYTES = 16
"""128 random bits: an id cannot be guessed."""

LEAST_CONNECTIONS = 16
"""Size of the pool where there are fewer threads for requests: the threads of the background worker
need as many, and some keep theirs. The pool opens only what is used."""

MARK_SECONDS = 5.0
"""Timeout of each call that reads or writes the mark. A server whose bucket does not respond in
time starts without comparing it."""


def build_services(
    settings: Settings,
    on_upload: Listener = no_listener,
    *,
    passwords: Passwords | None = None,
    now: Clock = utc_now,
) -> Services:
    """All services for `settings`; `on_upload` is called with each step of an upload.

    `passwords` have the secure hashing cost by default. `now` is this machine's clock.
    """
    # Synced: a published file without a record is as good as lost.
    synced = Durability(settings.durability) is not Durability.NONE
    connections = max(settings.threads, LEAST_CONNECTIONS)
    database = Database(settings.records_url, synced=synced, connections=connections)
    new_id = partial(secrets.token_hex, ID_BYTES)
    context = Context(database=database, clock=now, new_id=new_id, settings=settings)
    return assemble(context, on_upload, clock=shared_clock(database, now), passwords=passwords)


def assemble(
    context: Context,
    on_upload: Listener = no_listener,
    *,
    clock: Clock,
    passwords: Passwords | None = None,
    store: Store | None = None,
    idle_clock: IdleClock | None = None,
) -> Services:
    """All services over one context; `clock` is shared by all nodes.

    Tests pass a context, a store and an idle clock of their own.
    """
    settings, database = context.settings, context.database

    values = SharedValues(database)
    signing = Signing(values, settings.data_dir / OLD_SECRET)
    counts = counts_in(settings.data_dir, context.clock)

    # Records; their observers run in the transaction of each change.
    quotas = ProjectQuotas(database)
    links = LinkLimits(context)
    senders = SenderLimits(
        counts, per_minute=settings.new_upload_limit, max_uploads=settings.max_uploads_per_sender
    )
    waker = Waker(settings.data_dir)

    def after_step(step: str) -> None:
        on_upload(step)
        if step == UploadState.COMPLETE or step in GONE:
            waker.wake()

    records = UploadRecords(
        database,
        after_step,
        [quotas.observe, links.observe, senders.observe, partial(webhooks.on_upload, context)],
    )

    # Uploads and video, with the clock that all nodes share.
    bucket, own_store = _storage(context, clock)
    store = store or own_store
    shared = replace(context, clock=clock)  # For uploads and videos.
    completion = Completion(shared, records, store)
    uploads = UploadService(
        shared, records, store, completion=completion, allowance=links.allowance
    )
    chunks = Chunks(
        records,
        store.staging,
        completion=completion,
        policy=settings.policy,
        quotas=quotas,
        limits=BodyLimits.of(settings),
        clock=clock,
        allowance=links.allowance,
    )
    cells = store.direct if settings.direct_uploads else None
    direct = None if cells is None else DirectUploads(cells, chunks, records)
    whole_files = WholeFiles(
        shared,
        records,
        store,
        completion=completion,
        quotas=quotas,
        allowance=links.allowance,
    )
    library = VideoLibrary(shared, records, store.library)
    clock_file = NoteFile(settings.data_dir / "clock")
    clock_note = SharedNote(values, "clock") if database.is_remote else clock_file
    housekeeping = Housekeeping(
        shared,
        records,
        store,
        completion=completion,
        idle_clock=idle_clock or IdleClock(clock_note, partial(read_clocks, clock)),
    )
    media = MediaServices.build(
        shared, records, store, observer=partial(webhooks.on_playback, context), bucket=bucket
    )

    return Services(
        context=context,
        store=store,
        completion=completion,
        uploads=uploads,
        chunks=chunks,
        direct=direct,
        client_uploads=ClientUploads(uploads, chunks, library),
        whole_files=whole_files,
        library=library,
        housekeeping=housekeeping,
        bucket=bucket,
        storage_identity=_storage_identity(shared, records, bucket),
        media=media,
        identity=IdentityServices.build(
            context, signing, counts, passwords=passwords, cancel_uploads=uploads.cancel_all
        ),
        video_expiry=VideoExpiry(context, records, library),
        quotas=quotas,
        request_rate=RequestRate(counts, per_minute=settings.request_limit),
        line=line_in(
            settings.data_dir,
            total=settings.bytes_per_second,
            cap=settings.bytes_per_second_per_sender,
        ),
        records=records,
        node=this_node(settings.data_dir),
        nodes=NodeRecords(database) if database.is_remote else None,
    )


# ---- folders or a bucket -------------------------------------------------------------------------

# The modules of a bucket are imported only where there is one.


def _storage(ctx: Context, clock: Clock) -> tuple[Bucket | None, Store]:
    """The bucket that stores the bytes, None if they are in folders; and the store."""
    settings = ctx.settings
    staging = settings.staging_dir
    if not settings.storage:
        return None, LocalStore(staging, settings.library_dir, durability_in(settings))
    from app.storage.s3.address import BucketAddress  # noqa: PLC0415 - see above
    from app.storage.s3.bucket import Bucket  # noqa: PLC0415 - see above
    from app.storage.s3.catalog import BucketCatalog  # noqa: PLC0415 - see above
    from app.storage.s3.store import BucketStore  # noqa: PLC0415 - see above

    endpoint, region = settings.s3_endpoint, settings.s3_region
    bucket = Bucket.at(BucketAddress.of(settings.storage, endpoint=endpoint, region=region))
    catalog = BucketCatalog(ctx.database, clock)
    return bucket, BucketStore(bucket, catalog, staging)


def _storage_identity(
    ctx: Context, records: UploadRecords, bucket: Bucket | None
) -> StorageIdentity:
    def is_in_bucket() -> bool:
        from app.storage.s3.catalog import BucketCatalog  # noqa: PLC0415 - only the first start asks

        return BucketCatalog(ctx.database).inventory.has_files()

    mark: BucketMark | None = None
    if bucket is not None:
        from app.storage.s3.bucket import BucketMark  # noqa: PLC0415 - see above

        mark = BucketMark(bucket.within(MARK_SECONDS))
    return StorageIdentity(ctx, records, mark=mark, is_in_bucket=is_in_bucket)
