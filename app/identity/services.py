"""Builds what is in this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from app.identity.accounts import Accounts
from app.identity.audit import AuditLog
from app.identity.callers import Callers
from app.identity.invitations import Invitations
from app.identity.keys import ApiKeys
from app.identity.link_passwords import LinkPasswords
from app.identity.link_visitors import LinkVisitors
from app.identity.mail import Mail
from app.identity.openid import Joining, OpenIdClient
from app.identity.openid_accounts import OpenIdAccounts
from app.identity.passwords import Passwords
from app.identity.projects import Projects
from app.identity.sessions import Sessions
from app.identity.share_links import ShareLinks
from app.identity.sign_in import SignIn
from app.identity.signing import Signing
from app.identity.single_use import SingleUse
from app.identity.upload_links import UploadLinks
from app.identity.webhook_delivery import WebhookDelivery
from app.identity.webhook_sender import WebhookSender
from app.identity.webhooks import Webhooks
from app.records.engine import Database
from app.records.identity.attempts import AttemptRecords
from app.records.identity.audit import AuditRecords
from app.records.identity.deliveries import DeliveryQueue
from app.records.identity.invitations import InvitationRecords
from app.records.identity.keys import KeyRecords
from app.records.identity.outbox import Outbox
from app.records.identity.passkeys import PasskeyRecords
from app.records.identity.people import PeopleRecords
from app.records.identity.projects import ProjectRecords
from app.records.identity.provider_accounts import ProviderAccountRecords
from app.records.identity.sessions import SessionRecords
from app.records.identity.share_links import ShareLinkRecords
from app.records.identity.spent_tokens import SpentTokens
from app.records.identity.upload_links import UploadLinkRecords
from app.records.identity.webhooks import WebhookRecords
from app.request.minute_counts import MinuteCounts

if TYPE_CHECKING:
    from app.identity.openid_provider import OpenIdProvider
    from app.identity.passkeys import Passkeys

SECRET = "link-secret"
"""The file in the data folder with what the cookies and tickets of links are signed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """What the operator has set."""

    is_open: bool
    audit_kept: timedelta
    has_passwords: bool
    project_quota: int | None
    has_passkeys: bool
    openid: OpenIdClient | None
    joining: Joining
    mail: Mail
    has_private_webhooks: bool


@dataclass(frozen=True, slots=True)
class OpenId:
    """The provider at which people sign in too, and whose accounts those are."""

    provider: OpenIdProvider
    accounts: OpenIdAccounts


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityServices:
    """What the web layer asks of identity."""

    callers: Callers
    keys: ApiKeys
    people: PeopleRecords
    accounts: Accounts
    invitations: Invitations
    passwords: Passwords
    projects: Projects
    sessions: Sessions
    sign_in: SignIn
    passkeys: Passkeys | None
    openid: OpenId | None
    mail: Mail
    share_links: ShareLinks
    signing: Signing
    audit: AuditLog
    upload_links: UploadLinks
    webhooks: Webhooks
    webhook_delivery: WebhookDelivery
    link_visitors: LinkVisitors

    @classmethod
    def build(  # noqa: PLR0913 - called by the composition root alone, with names
        cls,
        database: Database,
        data_dir: Path,
        options: IdentityOptions,
        *,
        passwords: Passwords,
        counts: MinuteCounts,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> IdentityServices:
        """All of it over one database."""
        keys = ApiKeys(KeyRecords(database), clock=clock, new_id=new_id)
        people = PeopleRecords(database)
        sessions = Sessions(SessionRecords(database), clock=clock, new_id=new_id)
        signing, attempts = Signing(data_dir / SECRET), AttemptRecords(database)
        link_passwords = LinkPasswords(passwords, attempts, clock=clock)
        shared, links = ShareLinkRecords(database), UploadLinkRecords(database)
        share_links = ShareLinks(shared, signing, link_passwords, clock=clock, new_id=new_id)
        visitors = LinkVisitors(links, signing, link_passwords, counts, clock=clock)
        upload_links = UploadLinks(links, link_passwords, visitors, clock=clock, new_id=new_id)
        tokens = SingleUse(SpentTokens(database), signing, clock=clock)
        return cls(
            callers=Callers(keys, sessions, share_links, visitors, is_open=options.is_open),
            keys=keys,
            people=people,
            accounts=Accounts(people, sessions, passwords, clock=clock, new_id=new_id),
            invitations=_invitations(database, options, passwords, clock=clock, new_id=new_id),
            passwords=passwords,
            projects=_projects(database, options, sessions, clock=clock, new_id=new_id),
            sessions=sessions,
            sign_in=SignIn(
                people,
                attempts,
                passwords,
                signing=signing,
                clock=clock,
                has_passwords=options.has_passwords,
            ),
            passkeys=_passkeys(database, options, tokens, clock=clock, new_id=new_id),
            openid=_openid(database, options, tokens, clock=clock, new_id=new_id),
            mail=options.mail,
            share_links=share_links,
            signing=signing,
            audit=AuditLog(AuditRecords(database), clock=clock, kept=options.audit_kept),
            upload_links=upload_links,
            link_visitors=visitors,
            webhooks=_webhooks(database, options, clock=clock, new_id=new_id),
            webhook_delivery=_webhook_delivery(database, options, clock=clock, new_id=new_id),
        )


def _invitations(
    database: Database,
    options: IdentityOptions,
    passwords: Passwords,
    *,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
) -> Invitations:
    return Invitations(
        InvitationRecords(database),
        PeopleRecords(database),
        passwords,
        clock=clock,
        new_id=new_id,
        has_passwords=options.has_passwords,
    )


def _webhooks(
    database: Database,
    options: IdentityOptions,
    *,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
) -> Webhooks:
    return Webhooks(
        WebhookRecords(database, Outbox(clock, new_id)),
        DeliveryQueue(database),
        may_be_private=options.has_private_webhooks,
        clock=clock,
        new_id=new_id,
    )


def _webhook_delivery(
    database: Database,
    options: IdentityOptions,
    *,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
) -> WebhookDelivery:
    sender = WebhookSender(may_be_private=options.has_private_webhooks)
    return WebhookDelivery(DeliveryQueue(database), sender, clock=clock, new_id=new_id)


# What follows is imported where it is used: it takes a process 0.3 s of CPU time.


def _projects(
    database: Database,
    options: IdentityOptions,
    sessions: Sessions,
    *,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
) -> Projects:
    return Projects(
        ProjectRecords(database),
        PeopleRecords(database),
        sessions=sessions,
        clock=clock,
        new_id=new_id,
        quota_bytes=options.project_quota,
    )


def _passkeys(
    database: Database,
    options: IdentityOptions,
    tokens: SingleUse,
    *,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
) -> Passkeys | None:
    if options.is_open or not options.has_passkeys:
        return None
    from app.identity.passkeys import Passkeys  # noqa: PLC0415

    records, people = PasskeyRecords(database), PeopleRecords(database)
    return Passkeys(records, people, tokens, clock=clock, new_id=new_id)


def _openid(
    database: Database,
    options: IdentityOptions,
    tokens: SingleUse,
    *,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
) -> OpenId | None:
    if options.is_open or options.openid is None:
        return None
    from app.identity.openid_provider import OpenIdProvider  # noqa: PLC0415

    accounts = OpenIdAccounts(
        ProviderAccountRecords(database),
        PeopleRecords(database),
        InvitationRecords(database),
        joining=options.joining,
        clock=clock,
        new_id=new_id,
    )
    return OpenId(OpenIdProvider(options.openid, tokens), accounts)
