"""What the other rooms ask of this one."""

from __future__ import annotations

from dataclasses import dataclass

from app.access.attempts import PasswordChecks
from app.access.callers import Callers
from app.access.invitations import ForgottenPasswords, Invitations
from app.access.keys import ApiKeys
from app.access.link_visitors import LinkVisitors
from app.access.mail import Mail, MailLimits
from app.access.openid import OpenId
from app.access.passkeys import Passkeys
from app.access.passwords import Passwords
from app.access.people import Accounts
from app.access.projects import Projects
from app.access.second_factor import SecondFactors
from app.access.senders import SenderRecords
from app.access.sessions import Sessions, SignIn
from app.access.share_links import ShareLinks
from app.access.signing import Signing
from app.access.upload_links import UploadLinks
from app.access.webhook_delivery import WebhookDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityServices:
    """People, keys, links and what lets them in; built by the composition root."""

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
