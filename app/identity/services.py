"""Builds what is in this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from app.identity.accounts import Accounts
from app.identity.audit import AuditLog
from app.identity.callers import Callers
from app.identity.forgotten_passwords import ForgottenPasswords
from app.identity.invitations import Invitations
from app.identity.keys import ApiKeys
from app.identity.link_passwords import LinkPasswords
from app.identity.link_visitors import LinkVisitors
from app.identity.mail import GuessingNotice, Mail
from app.identity.mail_limits import MailLimits
from app.identity.openid import Joining, OpenIdClient
from app.identity.openid_accounts import OpenIdAccounts
from app.identity.password_checks import PasswordChecks
from app.identity.passwords import Passwords
from app.identity.projects import Projects
from app.identity.second_factor import SecondFactors
from app.identity.sessions import SessionRules, Sessions
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
from app.records.identity.senders import SenderRecords
from app.records.identity.sessions import SessionRecords
from app.records.identity.share_links import ShareLinkRecords
from app.records.identity.spent_tokens import SpentTokens
from app.records.identity.upload_links import UploadLinkRecords
from app.records.identity.webhooks import WebhookRecords
from app.request.minute_counts import MinuteCounts

if TYPE_CHECKING:
    from app.identity.openid_provider import OpenIdProvider
    from app.identity.passkeys import Passkeys


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
    public_url: str
    has_private_webhooks: bool
    session_rules: SessionRules


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wiring:
    """What every part is built on."""

    database: Database
    options: IdentityOptions
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    cancel_uploads: Callable[[str], None]


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
    senders: SenderRecords
    accounts: Accounts
    invitations: Invitations
    forgotten_passwords: ForgottenPasswords
    passwords: Passwords
    password_checks: PasswordChecks
    projects: Projects
    sessions: Sessions
    sign_in: SignIn
    second_factors: SecondFactors
    passkeys: Passkeys | None
    openid: OpenId | None
    mail: Mail
    mail_limits: MailLimits
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
        signing: Signing,
        options: IdentityOptions,
        *,
        passwords: Passwords,
        counts: MinuteCounts,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        cancel_uploads: Callable[[str], None],
    ) -> IdentityServices:
        """All of it over one database; `cancel_uploads` ends those of senders with a prefix."""
        wiring = _Wiring(
            database=database,
            options=options,
            clock=clock,
            new_id=new_id,
            cancel_uploads=cancel_uploads,
        )
        keys = ApiKeys(KeyRecords(database), clock=clock, new_id=new_id)
        people = PeopleRecords(database)
        sessions = Sessions(
            SessionRecords(database), clock=clock, new_id=new_id, rules=options.session_rules
        )
        audit = AuditLog(AuditRecords(database), clock=clock, kept=options.audit_kept)
        checks = PasswordChecks(passwords, AttemptRecords(database), clock=clock)
        share_links, visitors, upload_links = _links(
            wiring, LinkPasswords(passwords, checks), signing=signing, counts=counts
        )
        tokens = SingleUse(SpentTokens(database), signing, clock=clock)
        invitations = _invitations(wiring, passwords)
        return cls(
            callers=Callers(keys, sessions, share_links, visitors, is_open=options.is_open),
            keys=keys,
            people=people,
            senders=SenderRecords(database),
            accounts=Accounts(people, sessions, passwords, clock=clock, new_id=new_id),
            invitations=invitations,
            forgotten_passwords=ForgottenPasswords(
                people,
                invitations,
                checks,
                audit,
                options.mail,
                public_url=options.public_url,
            ),
            passwords=passwords,
            password_checks=checks,
            projects=_projects(wiring, sessions),
            sessions=sessions,
            sign_in=_sign_in(wiring, passwords, checks, signing),
            second_factors=SecondFactors(database, tokens, checks, clock=clock),
            passkeys=_passkeys(wiring, tokens),
            openid=_openid(wiring, tokens),
            mail=options.mail,
            mail_limits=MailLimits(AttemptRecords(database), clock=clock),
            share_links=share_links,
            signing=signing,
            audit=audit,
            upload_links=upload_links,
            link_visitors=visitors,
            webhooks=_webhooks(wiring),
            webhook_delivery=_webhook_delivery(wiring),
        )


def _links(
    wiring: _Wiring, link_passwords: LinkPasswords, *, signing: Signing, counts: MinuteCounts
) -> tuple[ShareLinks, LinkVisitors, UploadLinks]:
    database, clock, new_id = wiring.database, wiring.clock, wiring.new_id
    shared, links = ShareLinkRecords(database), UploadLinkRecords(database)
    visitors = LinkVisitors(links, signing, link_passwords, counts, clock=clock)
    return (
        ShareLinks(shared, signing, link_passwords, clock=clock, new_id=new_id),
        visitors,
        UploadLinks(
            links,
            link_passwords,
            visitors,
            clock=clock,
            new_id=new_id,
            cancel_uploads=wiring.cancel_uploads,
        ),
    )


def _sign_in(
    wiring: _Wiring, passwords: Passwords, checks: PasswordChecks, signing: Signing
) -> SignIn:
    return SignIn(
        PeopleRecords(wiring.database),
        checks,
        passwords,
        signing=signing,
        warn=GuessingNotice(wiring.options.mail, wiring.options.public_url).send,
        has_passwords=wiring.options.has_passwords,
    )


def _invitations(wiring: _Wiring, passwords: Passwords) -> Invitations:
    return Invitations(
        InvitationRecords(wiring.database),
        PeopleRecords(wiring.database),
        passwords,
        clock=wiring.clock,
        new_id=wiring.new_id,
        has_passwords=wiring.options.has_passwords,
    )


def _webhooks(wiring: _Wiring) -> Webhooks:
    return Webhooks(
        WebhookRecords(wiring.database, Outbox(wiring.clock, wiring.new_id)),
        DeliveryQueue(wiring.database),
        may_be_private=wiring.options.has_private_webhooks,
        clock=wiring.clock,
        new_id=wiring.new_id,
    )


def _webhook_delivery(wiring: _Wiring) -> WebhookDelivery:
    sender = WebhookSender(may_be_private=wiring.options.has_private_webhooks)
    return WebhookDelivery(
        DeliveryQueue(wiring.database), sender, clock=wiring.clock, new_id=wiring.new_id
    )


def _projects(wiring: _Wiring, sessions: Sessions) -> Projects:
    return Projects(
        ProjectRecords(wiring.database),
        PeopleRecords(wiring.database),
        sessions=sessions,
        clock=wiring.clock,
        new_id=wiring.new_id,
        quota_bytes=wiring.options.project_quota,
    )


# What follows is imported where it is used: it takes a process 0.3 s of CPU time.


def _passkeys(wiring: _Wiring, tokens: SingleUse) -> Passkeys | None:
    if wiring.options.is_open or not wiring.options.has_passkeys:
        return None
    from app.identity.passkeys import Passkeys  # noqa: PLC0415 - see above

    records, people = PasskeyRecords(wiring.database), PeopleRecords(wiring.database)
    return Passkeys(records, people, tokens, clock=wiring.clock, new_id=wiring.new_id)


def _openid(wiring: _Wiring, tokens: SingleUse) -> OpenId | None:
    if wiring.options.is_open or wiring.options.openid is None:
        return None
    from app.identity.openid_provider import OpenIdProvider  # noqa: PLC0415 - see above

    accounts = OpenIdAccounts(
        ProviderAccountRecords(wiring.database),
        PeopleRecords(wiring.database),
        InvitationRecords(wiring.database),
        joining=wiring.options.joining,
        clock=wiring.clock,
        new_id=wiring.new_id,
    )
    return OpenId(OpenIdProvider(wiring.options.openid, tokens), accounts)
