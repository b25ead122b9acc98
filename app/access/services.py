"""Builds the services of this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from app.access.senders import SenderRecords
from app.access.sessions import Sessions, SignIn
from app.access.share_links import ShareLinks
from app.access.signing import Signing, SingleUse
from app.access.upload_links import UploadLinks
from app.access.webhook_delivery import WebhookDelivery, WebhookSender
from app.db.context import Context
from app.db.minute_counts import MinuteCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityServices:
    """People, keys, links and what lets them in."""

    callers: Callers
    keys: ApiKeys
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
        ctx: Context,
        signing: Signing,
        counts: MinuteCounts,
        *,
        passwords: Passwords | None,
        cancel_uploads: Callable[[str], None],
    ) -> IdentityServices:
        """The services of a process; called by the composition root alone.

        `passwords` have the secure hashing cost by default. `cancel_uploads` is called with the
        prefix of the senders whose unfinished uploads end with a link.
        """
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
        return cls(
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
