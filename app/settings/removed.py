"""The settings that earlier versions had: what replaces each, and when the start must fail.

A removed setting is reported, and the server starts, unless it set a limit that is lost: then the
start fails, as it does for an invalid value, because the operator may rely on the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from app.settings.table import Settings
from app.settings.values import count, rate, seconds_within, sizes, switch


@dataclass(frozen=True, slots=True)
class RemovedSetting:
    """A variable that has no effect any more; `instead` completes "... is no longer a setting:"."""

    instead: str
    is_kept: Callable[[Settings, str], bool] = lambda _settings, _text: True
    """Whether the settings still keep the limit that its value set; may raise `ValueError`."""


def _at_most(
    parse: Callable[[str], float], limit_now: Callable[[Settings], float]
) -> Callable[[Settings, str], bool]:
    """Checks an upper limit, where 0 means none: it is kept if the limit now is not higher."""

    def is_kept(settings: Settings, text: str) -> bool:
        before, now = parse(text), limit_now(settings)
        return not before or 0 < now <= before

    return is_kept


REMOVED = {
    "SLUICE_BODY_IDLE_SECONDS": RemovedSetting(
        "a request body that stays idle for 30 s ends",
        _at_most(seconds_within(0), attrgetter("body_idle_seconds")),
    ),
    "SLUICE_CONNECTIONS_PER_ADDRESS": RemovedSetting(
        "one address may have 512 connections open in each worker",
        _at_most(count, attrgetter("connections_per_address")),
    ),
    "SLUICE_LOG_FORMAT": RemovedSetting("logs are text on a terminal, and JSON elsewhere"),
    "SLUICE_MAX_RESERVED_BYTES_OF_LINKS": RemovedSetting(
        "all upload links together may hold five times SLUICE_MAX_RESERVED_BYTES_PER_LINK",
        _at_most(sizes(0), attrgetter("max_reserved_bytes_of_links")),
    ),
    "SLUICE_MAX_RESERVED_BYTES_PER_SENDER": RemovedSetting(
        "set SLUICE_MAX_UPLOADS_PER_SENDER, and a quota for each project",
        _at_most(sizes(0), lambda _settings: 0),
    ),
    "SLUICE_MIN_BYTES_PER_SECOND": RemovedSetting(
        "a request body that arrives with less than 1024 bytes per second ends",
        lambda settings, text: settings.min_bytes_per_second >= rate(text),
    ),
    "SLUICE_NEW_UPLOADS_PER_MINUTE": RemovedSetting(
        "one in five of SLUICE_REQUESTS_PER_MINUTE may begin an upload",
        _at_most(count, attrgetter("new_upload_limit")),
    ),
    "SLUICE_OIDC_DOMAINS": RemovedSetting(
        "set SLUICE_OIDC_JOIN, as in SLUICE_OIDC_JOIN=@example.org"
    ),
    "SLUICE_OIDC_GROUPS": RemovedSetting("set SLUICE_OIDC_JOIN, as in SLUICE_OIDC_JOIN=films"),
    "SLUICE_OIDC_NAME": RemovedSetting('the button says "Sign in with single sign-on"'),
    "SLUICE_OIDC_ROLE": RemovedSetting(
        "set SLUICE_OIDC_JOIN, as in SLUICE_OIDC_JOIN=@example.org=viewer"
    ),
    "SLUICE_PASSKEYS": RemovedSetting(
        "set SLUICE_SIGN_IN to the ways of signing in, as in SLUICE_SIGN_IN=passwords",
        lambda settings, text: switch(text) or settings.is_open or not settings.has_passkeys,
    ),
    "SLUICE_PASSWORDS": RemovedSetting(
        "set SLUICE_SIGN_IN to the ways of signing in, as in SLUICE_SIGN_IN=passkeys",
        lambda settings, text: switch(text) or settings.is_open or not settings.has_passwords,
    ),
    "SLUICE_RESERVATION_SECONDS": RemovedSetting(
        "an upload that received no byte for 10 minutes releases its disk space",
        _at_most(seconds_within(0), attrgetter("reservation_seconds")),
    ),
    "SLUICE_SESSION_SECONDS": RemovedSetting(
        "a browser is signed out after three times SLUICE_SESSION_IDLE_SECONDS, or after 90 days",
        _at_most(seconds_within(1), attrgetter("session_seconds")),
    ),
    "SLUICE_SWEEP_SECONDS": RemovedSetting(
        "expired uploads are looked for every minute, and more often if SLUICE_EXPIRY_SECONDS is "
        "less than 10 minutes"
    ),
}
"""By variable."""
