"""Builds the services from the settings: first their shared dependencies, then each service."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from app.access import webhooks
from app.access.accounts import Accounts
from app.access.attempts import AttemptRecords, LinkPasswords, PasswordChecks
from app.access.callers import Callers
from app.access.forgotten_passwords import ForgottenPasswords
from app.access.invitations import InvitationRecords, Invitations
from app.access.keys import ApiKeys
from app.access.link_visitors import LinkVisitors
from app.access.mail import GuessingNotice, Mail, MailLimits
from app.access.openid import Joining, OpenIdAccounts, OpenIdClient, ProviderAccountRecords
from app.access.passkey_records import PasskeyRecords
from app.access.passwords import MAX_WAITING, Passwords
from app.access.people import PeopleRecords
from app.access.projects import Projects
from app.access.second_factor import SecondFactors
from app.access.senders import RequestRate, SenderLimits, SenderRecords
from app.access.services import IdentityServices, OpenId
from app.access.sessions import SessionRecords, SessionRules, Sessions
from app.access.share_links import ShareLinks
from app.access.sign_in import SignIn
from app.access.signing import OLD_SECRET, Signing, SingleUse, SpentTokens
from app.access.upload_links import LinkLimits, ReservedLimits, UploadLinks
from app.access.video_expiry import VideoExpiry
from app.access.webhook_delivery import WebhookDelivery, WebhookSender
from app.core.access import Role
from app.core.lifecycle import UploadState
from app.db.context import Context
from app.db.engine import Database
from app.db.minute_counts import MinuteCounts, counts_in
from app.db.nodes import Clock, Leases, NodeRecords, SharedNote, SharedValues, shared_clock, utc_now
from app.db.this_node import this_node
from app.db.waking import Waker
from app.http.services import Services
from app.ingest.bandwidth import Line, line_in
from app.ingest.copy import BodyLimits
from app.ingest.shared_table import NameDigest
from app.records.upload_changes import Observer
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
    from app.access.passkeys import Passkeys
    from app.storage.s3.address import BucketAddress
    from app.storage.s3.bucket import Bucket
    from app.storage.s3.mark import BucketMark
    from app.storage.s3.store import BucketStore


# ---- storage -------------------------------------------------------------------------------------

# The configured storage of records and bytes.


def database_of(settings: Settings) -> Database:
    """The database of the records."""
    # Synced: a published file without a record is as good as lost.
    synced = Durability(settings.durability) is not Durability.NONE
    return Database(settings.records_url, synced=synced, connections=settings.threads)


def bucket_of(settings: Settings) -> Bucket | None:
    """The bucket that stores the bytes; None if they are in folders."""
    if not settings.storage:
        return None
    from app.storage.s3.bucket import Bucket  # noqa: PLC0415 - only with a bucket

    return Bucket.at(bucket_address(settings))


def bucket_address(settings: Settings) -> BucketAddress:
    """The address of that bucket."""
    from app.storage.s3.address import BucketAddress  # noqa: PLC0415 - only with a bucket

    endpoint, region = settings.s3_endpoint, settings.s3_region
    return BucketAddress.of(settings.storage, endpoint=endpoint, region=region)


def store_in(
    bucket: Bucket | None, settings: Settings, database: Database, clock: Clock
) -> LocalStore | BucketStore:
    """The store in a bucket, or else in the folders."""
    if bucket is None:
        return LocalStore(settings.staging_dir, settings.library_dir, durability_in(settings))
    from app.records.bucket import BucketCatalog  # noqa: PLC0415 - only with a bucket
    from app.storage.s3.store import BucketStore  # noqa: PLC0415 - only with a bucket

    catalog = BucketCatalog(database, clock)
    return BucketStore(bucket, catalog, settings.staging_dir, spool_bytes=settings.spool_bytes)


# ---- callers -------------------------------------------------------------------------------------

# Authentication and limits of callers, from the settings.


REQUESTS_PER_MINUTE = 6000
NEW_UPLOADS_PER_MINUTE = 1200
"""Defaults with accounts. A fast client with sixteen parallel chunks stays far below."""


def request_rate(settings: Settings, counts: MinuteCounts) -> RequestRate:
    """The limit of requests per caller."""
    limit = settings.per_minute(settings.requests_per_minute, REQUESTS_PER_MINUTE)
    return RequestRate(counts, per_minute=limit)


def sender_limits(settings: Settings, counts: MinuteCounts) -> SenderLimits:
    """The limits of new and unfinished uploads per sender."""
    return SenderLimits(
        counts,
        per_minute=settings.per_minute(settings.new_uploads_per_minute, NEW_UPLOADS_PER_MINUTE),
        max_uploads=settings.max_uploads_per_sender,
        max_reserved_bytes=settings.max_reserved_bytes_per_sender,
    )


def reserved_limits(settings: Settings) -> ReservedLimits:
    """The limits of reservations through one link, and through all links together."""
    return ReservedLimits(
        of_link=settings.max_reserved_bytes_per_link,
        of_all_links=settings.max_reserved_bytes_of_links,
    )


def line(settings: Settings, name_digest: NameDigest | None) -> Line | None:
    """The bandwidth limit that senders share; None if there is no limit."""
    total, cap = settings.bytes_per_second, settings.bytes_per_second_per_sender
    return line_in(settings.data_dir, name_digest, total=total, cap=cap)


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


# ---- build ---------------------------------------------------------------------------------------


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
    context = Context(database=database_of(settings), clock=now, new_id=_new_id, settings=settings)
    base = _base(context, on_upload)
    uploads, chunks, library = _uploads(base), _chunks(base), _library(base)
    identity = _access(base, passwords or _passwords(settings), uploads)
    database = base.database
    return Services(
        settings=settings,
        context=context,
        uploads=uploads,
        chunks=chunks,
        direct=_direct(base, chunks),
        client_uploads=ClientUploads(uploads, chunks, library),
        whole_files=_whole_files(base),
        library=library,
        housekeeping=_housekeeping(base),
        inspection=base.store.inspection,
        bucket=base.bucket,
        storage_identity=_storage_identity(base),
        media=_media(base),
        identity=identity,
        video_expiry=VideoExpiry(context, base.records, library),
        quotas=base.quotas,
        request_rate=request_rate(settings, base.counts),
        line=line(settings, base.name_digest),
        counts=base.counts,
        records=base.records,
        database=database,
        node=this_node(settings.data_dir),
        nodes=NodeRecords(database) if database.is_remote else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """Dependencies shared by several services."""

    context: Context
    """Has this machine's clock; `completion` has the clock that all nodes share."""
    records: UploadRecords
    bucket: Bucket | None
    store: LocalStore | BucketStore
    completion: Completion
    quotas: ProjectQuotas
    links: LinkLimits
    signing: Signing
    name_digest: NameDigest | None
    """Digests senders' names for reports to other nodes; None on a single machine."""
    counts: MinuteCounts

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def database(self) -> Database:
        return self.context.database


def _base(context: Context, on_upload: Listener) -> _Base:
    settings, database = context.settings, context.database
    links = LinkLimits(context, reserved_limits(settings))
    quotas = ProjectQuotas(database)
    signing = Signing(SharedValues(database), settings.data_dir / OLD_SECRET)
    name_digest = NameDigest(lambda: signing.secret) if database.is_remote else None
    counts = counts_in(settings.data_dir, name_digest)
    limits = sender_limits(settings, counts)
    observers: list[Observer] = [
        *(quotas.observe, links.observe, limits.observe),
        partial(webhooks.on_upload, context),
    ]
    records = UploadRecords(database, _and_wake(Waker(settings.data_dir), on_upload), observers)
    clock = shared_clock(database, context.clock)
    bucket = bucket_of(settings)
    store = store_in(bucket, settings, database, clock)
    return _Base(
        context=context,
        records=records,
        bucket=bucket,
        store=store,
        completion=Completion(records, store, policy=settings.policy, clock=clock),
        quotas=quotas,
        links=links,
        name_digest=name_digest,
        signing=signing,
        counts=counts,
    )


def _and_wake(waker: Waker, on_upload: Listener) -> Listener:
    """A listener that also wakes the media worker when a file is published."""

    def tell(step: str) -> None:
        on_upload(step)
        if step == UploadState.COMPLETE:
            waker.wake()

    return tell


def _uploads(base: _Base) -> UploadService:
    return UploadService(
        base.records,
        base.store,
        completion=base.completion,
        policy=base.settings.policy,
        clock=base.completion.clock,
        new_id=_new_id,
        allowance=base.links.allowance,
    )


def _chunks(base: _Base) -> Chunks:
    return Chunks(
        base.records,
        base.store.staging,
        completion=base.completion,
        policy=base.settings.policy,
        quotas=base.quotas,
        limits=_body_limits(base.settings),
        clock=base.completion.clock,
        allowance=base.links.allowance,
    )


def _direct(base: _Base, chunks: Chunks) -> DirectUploads | None:
    settings, store = base.settings, base.store
    if not settings.direct_uploads or isinstance(store, LocalStore):
        return None
    from app.storage.s3.direct import DirectCells  # noqa: PLC0415 - only with a bucket

    return DirectUploads(DirectCells(store.cells), chunks, origin=bucket_address(settings).origin)


def _whole_files(base: _Base) -> WholeFiles:
    return WholeFiles(
        base.records,
        base.store,
        completion=base.completion,
        policy=base.settings.policy,
        quotas=base.quotas,
        limits=_body_limits(base.settings),
        clock=base.completion.clock,
        new_id=_new_id,
        allowance=base.links.allowance,
    )


def _body_limits(settings: Settings) -> BodyLimits:
    return BodyLimits(settings.body_idle_seconds, settings.min_bytes_per_second)


def _library(base: _Base) -> VideoLibrary:
    store = base.store
    return VideoLibrary(
        base.records,
        store.library,
        policy=base.settings.policy,
        clock=base.completion.clock,
        let_group_read=store.library.let_group_read if isinstance(store, LocalStore) else None,
        sign_url=None if isinstance(store, LocalStore) else store.library.sign_url,
    )


def _housekeeping(base: _Base) -> Housekeeping:
    settings, store = base.settings, base.store
    is_shared, file = base.database.is_remote, settings.data_dir / "clock"
    note = SharedNote(SharedValues(base.database), file.name) if is_shared else NoteFile(file)
    clock = base.completion.clock
    return Housekeeping(
        base.records,
        store,
        completion=base.completion,
        clock=clock,
        idle_clock=IdleClock(note, partial(read_clocks, clock)),
        leases=Leases(base.database),
        expiry=timedelta(seconds=settings.expiry_seconds),
        reservation=timedelta(seconds=settings.reservation_seconds),
        is_open=settings.is_open,
        is_in_folders=isinstance(store, LocalStore),
        collect_garbage=None if isinstance(store, LocalStore) else store.inspection.sweep,
    )


def _storage_identity(base: _Base) -> StorageIdentity:
    return StorageIdentity(
        base.records,
        SharedValues(base.database),
        place=base.settings.storage,
        mark=None if base.bucket is None else _mark_in(base.bucket),
        is_in_bucket=partial(_has_files_in_bucket, base.database),
        new_id=_new_id,
    )


def _mark_in(bucket: Bucket) -> BucketMark:
    from app.storage.s3.mark import BucketMark  # noqa: PLC0415 - only with a bucket

    return BucketMark(bucket.within(MARK_SECONDS))


def _has_files_in_bucket(database: Database) -> bool:
    from app.records.bucket import BucketCatalog  # noqa: PLC0415 - only the first start asks

    return BucketCatalog(database).inventory.has_files()


def _media(base: _Base) -> MediaServices:
    settings = base.settings
    return MediaServices.build(
        settings.data_dir,
        base.database,
        base.records,
        base.store,
        base.completion.clock,
        threads=settings.threads,
        policy=settings.rendition_policy,
        observer=partial(webhooks.on_playback, base.context),
        bucket=base.bucket,
        spool_bytes=settings.spool_bytes,
    )


def _passwords(settings: Settings) -> Passwords:
    """At most half of a worker's threads wait for a hash: uploads and downloads need the rest."""
    return Passwords(max_waiting=min(MAX_WAITING, settings.threads // 2))


def _access(base: _Base, passwords: Passwords, uploads: UploadService) -> IdentityServices:
    context, settings, database = base.context, base.settings, base.database
    clock, new_id, signing = context.clock, context.new_id, base.signing
    people, keys = PeopleRecords(database), ApiKeys(context)
    mail = Mail(settings.smtp_url, settings.mail_from)
    sessions = Sessions(
        SessionRecords(database), clock=clock, new_id=new_id, rules=_session_rules(settings)
    )
    checks = PasswordChecks(passwords, AttemptRecords(database), clock=clock)
    link_passwords = LinkPasswords(passwords, checks)
    share_links = ShareLinks(context, signing, link_passwords)
    visitors = LinkVisitors(context, signing, link_passwords, base.counts)
    tokens = SingleUse(SpentTokens(database), signing, clock=clock)
    invitations = Invitations(context, passwords)
    return IdentityServices(
        callers=Callers(keys, sessions, share_links, visitors, is_open=settings.is_open),
        keys=keys,
        people=people,
        senders=SenderRecords(database),
        accounts=Accounts(context, sessions, passwords),
        invitations=invitations,
        forgotten_passwords=ForgottenPasswords(context, people, invitations, checks, mail),
        passwords=passwords,
        password_checks=checks,
        projects=Projects(context, sessions.forget),
        sessions=sessions,
        sign_in=SignIn(
            people,
            checks,
            passwords,
            signing=signing,
            warn=GuessingNotice(mail, settings.link_url).send,
            has_passwords=settings.passwords,
        ),
        second_factors=SecondFactors(database, tokens, checks, clock=clock),
        passkeys=_passkeys(context, tokens),
        openid=_openid(context, tokens),
        mail=mail,
        mail_limits=MailLimits(AttemptRecords(database), clock=clock),
        share_links=share_links,
        signing=signing,
        upload_links=UploadLinks(
            context, link_passwords, forget=visitors.forget, cancel_uploads=uploads.cancel_all
        ),
        link_visitors=visitors,
        webhook_delivery=WebhookDelivery(
            context, WebhookSender(may_be_private=settings.webhook_private)
        ),
    )


# The following modules are imported where they are used: they cost 0.3 s of CPU time per process.


def _passkeys(ctx: Context, tokens: SingleUse) -> Passkeys | None:
    if ctx.settings.is_open or not ctx.settings.passkeys:
        return None
    from app.access.passkeys import Passkeys  # noqa: PLC0415 - see above

    records, people = PasskeyRecords(ctx.database), PeopleRecords(ctx.database)
    return Passkeys(records, people, tokens, clock=ctx.clock, new_id=ctx.new_id)


def _openid(ctx: Context, tokens: SingleUse) -> OpenId | None:
    client, settings = _openid_client(ctx.settings), ctx.settings
    if settings.is_open or client is None:
        return None
    from app.access.openid_provider import OpenIdProvider  # noqa: PLC0415 - see above

    accounts = OpenIdAccounts(
        ProviderAccountRecords(ctx.database),
        PeopleRecords(ctx.database),
        InvitationRecords(ctx.database),
        joining=Joining(
            domains=settings.oidc_domains,
            groups=settings.oidc_groups,
            role=Role(settings.oidc_role),
        ),
        clock=ctx.clock,
        new_id=ctx.new_id,
    )
    return OpenId(OpenIdProvider(client, tokens), accounts)


def _session_rules(settings: Settings) -> SessionRules:
    return SessionRules(
        idle=timedelta(seconds=settings.session_idle_seconds),
        longest=timedelta(seconds=settings.session_seconds),
        second_factor=settings.second_factor,
    )


def _new_id() -> str:
    return secrets.token_hex(ID_BYTES)
