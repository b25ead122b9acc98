"""Who may call, and how much each caller may do, by the settings."""

from __future__ import annotations

from datetime import timedelta

from app.access.link_limits import ReservedLimits
from app.access.mail import Mail
from app.access.openid import Joining, OpenIdClient
from app.access.records.sender_limits import SenderLimits
from app.access.request_rate import RequestRate
from app.access.services import IdentityOptions
from app.access.sessions import SessionRules
from app.core.access import Role
from app.db.minute_counts import MinuteCounts
from app.ingest.line import Line, line_in
from app.ingest.name_digest import NameDigest
from app.settings import Settings

REQUESTS_PER_MINUTE = 6000
NEW_UPLOADS_PER_MINUTE = 1200
"""Defaults with accounts. Sixteen chunks of a fast client in parallel stay far below."""


def request_rate(settings: Settings, counts: MinuteCounts) -> RequestRate:
    """How many requests one sender may make."""
    limit = settings.per_minute(settings.requests_per_minute, REQUESTS_PER_MINUTE)
    return RequestRate(counts, per_minute=limit)


def sender_limits(settings: Settings, counts: MinuteCounts) -> SenderLimits:
    """How much one sender may have on its way."""
    return SenderLimits(
        counts,
        per_minute=settings.per_minute(settings.new_uploads_per_minute, NEW_UPLOADS_PER_MINUTE),
        max_uploads=settings.max_uploads_per_sender,
        max_reserved_bytes=settings.max_reserved_bytes_per_sender,
    )


def reserved_limits(settings: Settings) -> ReservedLimits:
    """How much strangers may hold together."""
    return ReservedLimits(
        of_link=settings.max_reserved_bytes_per_link,
        of_all_links=settings.max_reserved_bytes_of_links,
    )


def line(settings: Settings, name_digest: NameDigest | None) -> Line | None:
    """What senders share of the bandwidth; None if there is no limit."""
    total, cap = settings.bytes_per_second, settings.bytes_per_second_per_sender
    return line_in(settings.data_dir, name_digest, total=total, cap=cap)


def identity_options(settings: Settings) -> IdentityOptions:
    """How people sign in, and what is kept and told of what they do."""
    return IdentityOptions(
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
        public_url=settings.link_url,
        session_rules=SessionRules(
            idle=timedelta(seconds=settings.session_idle_seconds),
            longest=timedelta(seconds=settings.session_seconds),
            second_factor=settings.second_factor,
        ),
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
