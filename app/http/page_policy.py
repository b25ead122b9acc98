"""The Content-Security-Policy of our pages: nothing inline, no other origin but the bucket."""

from __future__ import annotations

import secrets

from flask import Response, g

from app.http.context import current_services

PAGE_POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
"""Sent with every response, unless its view sets another policy."""

NONCE_BYTES = 16
"""At least 128 bits, as Content Security Policy Level 3, section 7.1, requires."""


def style_nonce() -> str:
    """The nonce that a `<style>` of this page needs to be applied; for templates.

    The player's elements have `<style>` in their shadow roots. The page's script gives them the
    nonce. Injected markup does not know it, so 'unsafe-inline' is not needed.
    """
    nonce: str = g.setdefault("style_nonce", secrets.token_urlsafe(NONCE_BYTES))
    return nonce


def widen_policy(response: Response) -> Response:
    """Allow styles with the nonce, if the page uses one, and direct uploads to the bucket."""
    more = []
    if nonce := g.get("style_nonce"):
        more.append(f"style-src 'self' 'nonce-{nonce}'")
    if direct := current_services().direct:
        more.append(f"connect-src 'self' {direct.origin}")
    if more:
        response.headers["Content-Security-Policy"] = "; ".join([PAGE_POLICY, *more])
    return response
