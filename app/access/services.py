"""Builds what is in this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from app.access.accounts import Accounts
from app.access.attempts import AttemptRecords, LinkPasswords, PasswordChecks
from app.access.callers import Callers
from app.access.forgotten_passwords import ForgottenPasswords
from app.access.invitations import InvitationRecords, Invitations
from app.access.keys import ApiKeys
from app.access.link_visitors import LinkVisitors
from app.access.mail import GuessingNotice, Mail, MailLimits
from app.access.openid import Joining, OpenIdClient
from app.access.openid_accounts import OpenIdAccounts, ProviderAccountRecords
from app.access.passkey_records import PasskeyRecords
from app.access.passwords import Passwords
from app.access.people import PeopleRecords
from app.access.projects import Projects
from app.access.second_factor import SecondFactors
from app.access.senders import SenderRecords
from app.access.sessions import SessionRecords, SessionRules, Sessions
from app.access.share_links import ShareLinks
from app.access.sign_in import SignIn
from app.access.signing import Signing, SingleUse, SpentTokens
from app.access.upload_links import UploadLinks
from app.access.webhook_delivery import WebhookDelivery, WebhookSender
from app.db.context import Context
from app.db.engine import Database
from app.db.minute_counts import MinuteCounts

if TYPE_CHECKING:
    from app.access.openid_provider import OpenIdProvider
    from app.access.passkeys import Passkeys


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityOptions:
    """What the operator has set."""

    is_open: bool
    has_passwords: bool
    has_passkeys: bool
    openid: OpenIdClient | None
    joining: Joining
    mail: Mail
    public_url: str
    session_rules: SessionRules


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wiring:
    """What every part is built on."""

    context: Context
    options: IdentityOptions
    cancel_uploads: Callable[[str], None]

    @property
    def database(self) -> Database:
        return self.context.database

    @property
    def clock(self) -> Callable[[], datetime]:
        return self.context.clock

    @property
    def new_id(self) -> Callable[[], str]:
        return self.context.new_id


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
    upload_links: UploadLinks
    webhook_delivery: WebhookDelivery
    link_visitors: LinkVisitors

    @classmethod
    def build(
        cls,
        context: Context,
        signing: Signing,
        options: IdentityOptions,
        *,
        passwords: Passwords,
        counts: MinuteCounts,
        cancel_uploads: Callable[[str], None],
    ) -> IdentityServices:
        """All of it over one database; `cancel_uploads` ends those of senders with a prefix."""
        database, clock, new_id = context.database, context.clock, context.new_id
        wiring = _Wiring(
            context=context,
            options=options,
            cancel_uploads=cancel_uploads,
        )
        keys = ApiKeys(context)
        people = PeopleRecords(database)
        sessions = Sessions(
            SessionRecords(database), clock=clock, new_id=new_id, rules=options.session_rules
        )
        checks = PasswordChecks(passwords, AttemptRecords(database), clock=clock)
        share_links, visitors, upload_links = _links(
            wiring, LinkPasswords(passwords, checks), signing=signing, counts=counts
        )
        tokens = SingleUse(SpentTokens(database), signing, clock=clock)
        invitations = Invitations(context, passwords)
        return cls(
            callers=Callers(keys, sessions, share_links, visitors, is_open=options.is_open),
            keys=keys,
            people=people,
            senders=SenderRecords(database),
            accounts=Accounts(context, sessions, passwords),
            invitations=invitations,
            forgotten_passwords=ForgottenPasswords(
                people,
                invitations,
                checks,
                context,
                options.mail,
                public_url=options.public_url,
            ),
            passwords=passwords,
            password_checks=checks,
            projects=Projects(context, sessions.forget),
            sessions=sessions,
            sign_in=_sign_in(wiring, passwords, checks, signing),
            second_factors=SecondFactors(database, tokens, checks, clock=clock),
            passkeys=_passkeys(wiring, tokens),
            openid=_openid(wiring, tokens),
            mail=options.mail,
            mail_limits=MailLimits(AttemptRecords(database), clock=clock),
            share_links=share_links,
            signing=signing,
            upload_links=upload_links,
            link_visitors=visitors,
            webhook_delivery=WebhookDelivery(
                context, WebhookSender(may_be_private=context.settings.webhook_private)
            ),
        )


def _links(
    wiring: _Wiring, link_passwords: LinkPasswords, *, signing: Signing, counts: MinuteCounts
) -> tuple[ShareLinks, LinkVisitors, UploadLinks]:
    visitors = LinkVisitors(wiring.context, signing, link_passwords, counts)
    return (
        ShareLinks(wiring.context, signing, link_passwords),
        visitors,
        UploadLinks(
            wiring.context,
            link_passwords,
            forget=visitors.forget,
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


def _passkeys(wiring: _Wiring, tokens: SingleUse) -> Passkeys | None:
    if wiring.options.is_open or not wiring.options.has_passkeys:
        return None
    from app.access.passkeys import Passkeys  # noqa: PLC0415 - see above

    records, people = PasskeyRecords(wiring.database), PeopleRecords(wiring.database)
    return Passkeys(records, people, tokens, clock=wiring.clock, new_id=wiring.new_id)


def _openid(wiring: _Wiring, tokens: SingleUse) -> OpenId | None:
    if wiring.options.is_open or wiring.options.openid is None:
        return None
    from app.access.openid_provider import OpenIdProvider  # noqa: PLC0415 - see above

    accounts = OpenIdAccounts(
        ProviderAccountRecords(wiring.database),
        PeopleRecords(wiring.database),
        InvitationRecords(wiring.database),
        joining=wiring.options.joining,
        clock=wiring.clock,
        new_id=wiring.new_id,
    )
    return OpenId(OpenIdProvider(wiring.options.openid, tokens), accounts)
