"""The Content-Security-Policy of our pages: nothing inline, nothing from other origins."""

from __future__ import annotations

import secrets

from flask import Response, g

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

NONCE_BYTES = 16
"""As Content Security Policy Level 3 asks, section 7.1: at least 128 bits."""


def style_nonce() -> str:
    """What a `<style>` of this page must carry to be applied; for templates.

    The player's elements have `<style>` in their shadow roots. The page's script gives them the
    nonce. Injected markup does not know it, so 'unsafe-inline' is not needed.
    """
    nonce: str = g.setdefault("style_nonce", secrets.token_urlsafe(NONCE_BYTES))
    return nonce


def allow_styles_with_nonce(response: Response) -> Response:
    """Name the nonce in the policy, if the page has asked for one."""
    if nonce := g.get("style_nonce"):
        policy = f"{PAGE_POLICY}; style-src 'self' 'nonce-{nonce}'"
        response.headers["Content-Security-Policy"] = policy
    return response
