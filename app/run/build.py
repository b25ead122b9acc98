"""Builds all services from the settings: the composition root.

First what several services share, then the uploads and the video, then people and links.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from app.access import webhooks
from app.access.attempts import AttemptRecords, LinkPasswords, PasswordChecks
from app.access.callers import Callers
from app.access.invitations import ForgottenPasswords, Invitations
from app.access.keys import ApiKeys
from app.access.link_visitors import LinkVisitors
from app.access.mail import GuessingNotice, Mail, MailLimits
from app.access.openid import Joining, OpenId
from app.access.passkeys import Passkeys
from app.access.passwords import MAX_WAITING, Passwords
from app.access.people import Accounts
from app.access.projects import Projects
from app.access.second_factor import SecondFactors
from app.access.senders import RequestRate, SenderLimits, SenderRecords
from app.access.sessions import Sessions, SignIn
from app.access.share_links import ShareLinks
from app.access.signing import OLD_SECRET, Signing, SingleUse
from app.access.upload_links import LinkLimits, ReservedLimits, UploadLinks
from app.access.video_expiry import VideoExpiry
from app.access.webhook_delivery import WebhookDelivery, WebhookSender
from app.core.lifecycle import UploadState
from app.db.context import Context
from app.db.engine import Database
from app.db.minute_counts import MinuteCounts, counts_in
from app.db.nodes import Clock, NodeRecords, SharedNote, SharedValues, shared_clock, utc_now
from app.db.this_node import this_node
from app.db.waking import Waker
from app.http.services import IdentityServices, Services
from app.ingest.bandwidth import line_in
from app.ingest.copy import BodyLimits
from app.ingest.shared_table import NameDigest
from app.records.uploads import Listener, UploadRecords, no_listener
from app.settings import Settings
from app.storage.base import Durability, durability_in
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
    from app.storage.s3.store import BucketStore


ID_BYTES = 16
"""128 random bits: an id cannot be guessed."""

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
    database = Database(settings.records_url, synced=synced, connections=settings.threads)
    new_id = partial(secrets.token_hex, ID_BYTES)
    context = Context(database=database, clock=now, new_id=new_id, settings=settings)

    # What the processes of a server count together. Nodes of a fleet report digests of names.
    values = SharedValues(database)
    signing = Signing(values, settings.data_dir / OLD_SECRET)
    name_digest = NameDigest(lambda: signing.secret) if database.is_remote else None
    counts = counts_in(settings.data_dir, name_digest)

    # Records; their observers run in the transaction of each change.
    quotas = ProjectQuotas(database)
    links = LinkLimits(
        context,
        ReservedLimits(
            of_link=settings.max_reserved_bytes_per_link,
            of_all_links=settings.max_reserved_bytes_of_links,
        ),
    )
    senders = SenderLimits(
        counts, per_minute=settings.new_upload_limit, max_uploads=settings.max_uploads_per_sender
    )
    records = UploadRecords(
        database,
        _and_wake(Waker(settings.data_dir), on_upload),
        [quotas.observe, links.observe, senders.observe, partial(webhooks.on_upload, context)],
    )

    # Uploads and video, with the clock that all nodes share.
    clock = shared_clock(database, now)
    bucket = _bucket(settings)
    store = _store(context, bucket, clock)
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
    whole_files = WholeFiles(
        shared,
        records,
        store,
        completion=completion,
        quotas=quotas,
        allowance=links.allowance,
    )
    library = VideoLibrary(
        shared,
        records,
        store.library,
        let_group_read=store.library.let_group_read if isinstance(store, LocalStore) else None,
        sign_url=None if isinstance(store, LocalStore) else store.library.sign_url,
    )
    clock_file = settings.data_dir / "clock"
    is_shared = database.is_remote
    clock_note = SharedNote(values, "clock") if is_shared else NoteFile(clock_file)
    housekeeping = Housekeeping(
        shared,
        records,
        store,
        completion=completion,
        idle_clock=IdleClock(clock_note, partial(read_clocks, clock)),
        collect_garbage=None if isinstance(store, LocalStore) else store.inspection.sweep,
    )
    media = MediaServices.build(
        settings.data_dir,
        database,
        records,
        store,
        clock,
        threads=settings.threads,
        policy=settings.rendition_policy,
        observer=partial(webhooks.on_playback, context),
        bucket=bucket,
        spool_bytes=settings.spool_bytes,
    )

    return Services(
        context=context,
        uploads=uploads,
        chunks=chunks,
        direct=_direct(bucket, store, chunks) if settings.direct_uploads else None,
        client_uploads=ClientUploads(uploads, chunks, library),
        whole_files=whole_files,
        library=library,
        housekeeping=housekeeping,
        inspection=store.inspection,
        bucket=bucket,
        storage_identity=_storage_identity(shared, records, bucket),
        media=media,
        identity=_identity(
            context, signing, counts, passwords=passwords, cancel_uploads=uploads.cancel_all
        ),
        video_expiry=VideoExpiry(context, records, library),
        quotas=quotas,
        request_rate=RequestRate(counts, per_minute=settings.request_limit),
        line=line_in(
            settings.data_dir,
            name_digest,
            total=settings.bytes_per_second,
            cap=settings.bytes_per_second_per_sender,
        ),
        counts=counts,
        records=records,
        node=this_node(settings.data_dir),
        nodes=NodeRecords(database) if database.is_remote else None,
    )


def _and_wake(waker: Waker, on_upload: Listener) -> Listener:
    """A listener that also wakes the media worker when a file is published."""

    def tell(step: str) -> None:
        on_upload(step)
        if step == UploadState.COMPLETE:
            waker.wake()

    return tell


# ---- folders or a bucket -------------------------------------------------------------------------

# The modules of a bucket are imported only where there is one.


def _bucket(settings: Settings) -> Bucket | None:
    """The bucket that stores the bytes; None if they are in folders."""
    if not settings.storage:
        return None
    from app.storage.s3.bucket import Bucket  # noqa: PLC0415 - see above
    from app.storage.s3.signing import BucketAddress  # noqa: PLC0415 - see above

    endpoint, region = settings.s3_endpoint, settings.s3_region
    return Bucket.at(BucketAddress.of(settings.storage, endpoint=endpoint, region=region))


def _store(ctx: Context, bucket: Bucket | None, clock: Clock) -> LocalStore | BucketStore:
    settings = ctx.settings
    if bucket is None:
        return LocalStore(settings.staging_dir, settings.library_dir, durability_in(settings))
    from app.storage.s3.catalog import BucketCatalog  # noqa: PLC0415 - see above
    from app.storage.s3.store import BucketStore  # noqa: PLC0415 - see above

    catalog = BucketCatalog(ctx.database, clock)
    return BucketStore(bucket, catalog, settings.staging_dir, spool_bytes=settings.spool_bytes)


def _direct(
    bucket: Bucket | None, store: LocalStore | BucketStore, chunks: Chunks
) -> DirectUploads | None:
    """Uploads that clients send straight to the bucket; None if there is none."""
    if bucket is None or isinstance(store, LocalStore):
        return None
    from app.storage.s3.direct import DirectCells  # noqa: PLC0415 - see above

    origin = bucket.caller.address.origin
    return DirectUploads(DirectCells(store.cells), chunks, origin=origin)


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


# ---- people and links ----------------------------------------------------------------------------


def _identity(
    ctx: Context,
    signing: Signing,
    counts: MinuteCounts,
    *,
    passwords: Passwords | None,
    cancel_uploads: Callable[[str], None],
) -> IdentityServices:
    settings, database, clock = ctx.settings, ctx.database, ctx.clock
    # At most half of a worker's threads wait for a hash: uploads and downloads need the rest.
    passwords = passwords or Passwords(max_waiting=min(MAX_WAITING, settings.threads // 2))
    checks = PasswordChecks(passwords, AttemptRecords(database), clock=clock)
    link_passwords = LinkPasswords(passwords, checks)
    keys, sessions = ApiKeys(ctx), Sessions(ctx)
    mail = Mail(settings.smtp_url, settings.mail_from)
    share_links = ShareLinks(ctx, signing, link_passwords)
    visitors = LinkVisitors(ctx, signing, link_passwords, counts)
    tokens = SingleUse(ctx, signing)
    invitations = Invitations(ctx, passwords)
    has_passkeys = settings.has_passkeys and not settings.is_open
    return IdentityServices(
        callers=Callers(keys, sessions, share_links, visitors, is_open=settings.is_open),
        keys=keys,
        senders=SenderRecords(database),
        accounts=Accounts(passwords, sessions.forget),
        invitations=invitations,
        forgotten_passwords=ForgottenPasswords(ctx, invitations, checks, mail),
        passwords=passwords,
        password_checks=checks,
        projects=Projects(ctx, sessions.forget),
        sessions=sessions,
        sign_in=SignIn(
            ctx,
            checks,
            passwords,
            signing=signing,
            warn=GuessingNotice(mail, settings.link_url).send,
        ),
        second_factors=SecondFactors(ctx, tokens, checks, sessions),
        passkeys=Passkeys(ctx, tokens, sessions) if has_passkeys else None,
        openid=_openid(ctx, tokens, invitations),
        mail=mail,
        mail_limits=MailLimits(AttemptRecords(database), clock=clock),
        share_links=share_links,
        signing=signing,
        upload_links=UploadLinks(
            ctx, link_passwords, forget=visitors.forget, cancel_uploads=cancel_uploads
        ),
        link_visitors=visitors,
        webhook_delivery=WebhookDelivery(
            ctx, WebhookSender(may_be_private=settings.webhook_private)
        ),
    )


def _openid(ctx: Context, tokens: SingleUse, invitations: Invitations) -> OpenId | None:
    settings = ctx.settings
    if settings.is_open or not settings.oidc_issuer:
        return None
    # Imported only here: it costs 0.2 s of CPU time per process.
    from app.access.openid_provider import OpenIdClient, OpenIdProvider  # noqa: PLC0415

    client = OpenIdClient(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        asks_groups=any(not name.startswith("@") for name, _ in settings.oidc_join),
    )
    joining = Joining(roles=dict(settings.oidc_join))
    return OpenId(ctx, OpenIdProvider(client, tokens), invitations, joining)
