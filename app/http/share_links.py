"""The JSON of share links, from clients and to them, for the API and the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.access.share_links import ShareLink, ShareTerms
from app.core.moments import instant, optional_instant, parse_expiry
from app.http.bodies import member
from app.http.proxy import absolute_url

_TERMS: Mapping[str, tuple[type, Any]] = {
    "name": (str, ""),
    "can_download": (bool, False),
    "password": (str, ""),
    "max_views": (int, None),
}
"""The type of each, and what null says."""


def share_url(link: ShareLink) -> str:
    """What guests open."""
    return absolute_url("shared.show", code=link.code)


def share_document(link: ShareLink) -> dict[str, Any]:
    """A link for members, with what it allows and how often it was opened."""
    return {
        "id": link.id,
        "url": share_url(link),
        "name": link.name,
        "videos": list(link.videos),
        "can_download": link.can_download,
        "has_password": link.password_hash is not None,
        "views": link.views,
        "max_views": link.max_views,
        "created": instant(link.created_at),
        "expires": optional_instant(link.expires_at),
    }


def share_terms_in(body: dict[str, Any], given: ShareTerms) -> ShareTerms:
    """The terms that a client has sent; those it does not name are `given`.

    Null takes a limit, a name or a password away. Raises `InvalidRequest`.
    """
    sent: dict[str, Any] = {
        name: member(body, name, kind=kind, default=nothing)
        for name, (kind, nothing) in _TERMS.items()
        if name in body
    }
    if "expires" in body:
        sent["expires_at"] = parse_expiry(body["expires"], datetime.now(UTC))
    return replace(given, **sent)
