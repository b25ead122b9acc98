"""URLs of files that an nginx in front sends by itself, until they expire.

nginx checks the signature (its `secure_link` module) and asks nobody; from an expired URL, or from
one for which it is not set up, it passes the request on, and Sluice decides as always.
`deploy/nginx-secure-link.conf` has its side.
"""

from __future__ import annotations

import base64
import hashlib
import time
from urllib.parse import quote

from app.core.upload import Upload
from app.http.context import ViewContext

PERIOD_SECONDS = 600
"""URLs change this often, and are good for one to two such periods."""


def signed_media(ctx: ViewContext, video: Upload, path: str, *, is_download: bool = False) -> str:
    """The URL of a video's bytes, signed if the operator has set that up."""
    question = "?download" if is_download else ""
    secret = ctx.services.settings.secure_link_secret
    if not secret or not ctx.services.library.hand_over(video):
        return path + question
    name = quote(video.filename.rpartition("/")[2], safe="") if is_download else ""
    expires = (int(time.time()) // PERIOD_SECONDS + 2) * PERIOD_SECONDS
    signature = sign(path, video.content_type, name, expires=expires, secret=secret)
    separator = "&" if question else "?"
    return (
        f"{path}{question}{separator}expires={expires}&type={video.content_type}"
        f"&name={name}&signature={signature}"
    )


def sign(path: str, content_type: str, name: str, *, expires: int, secret: str) -> str:
    """What nginx computes from its `secure_link_md5`; it knows no other digest than MD5."""
    signed = f"{expires} {path} {content_type} {name} {secret}".encode()
    digest = hashlib.md5(signed, usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
