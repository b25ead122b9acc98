"""Lets nginx in front, or the bucket itself, send the bytes of a download.

nginx (X-Accel-Redirect) drops the body of our answer and sends a file from an internal location
instead, or fetches it from the bucket at the URL that `BUCKET_HEADER` names. A client that follows
redirects can be sent to the bucket itself. Neither knows our validators, and they read some Range
headers differently, so we answer such requests ourselves. `deploy/nginx.conf` and
`deploy/nginx-bucket.conf` have nginx's side, with the headers it would drop.
"""

from __future__ import annotations

import re

from werkzeug.datastructures import Headers

ACCEL_HEADER = "X-Accel-Redirect"
BUCKET_HEADER = "X-Bucket-URL"

_OURS_ALONE = ("If-Match", "If-Unmodified-Since")
"""nginx and the bucket compare them with their own validators, which the client has never seen."""

_CONDITIONS = (*_OURS_ALONE, "If-None-Match", "If-Modified-Since", "If-Range")

_PLAIN_RANGE = re.compile("bytes=([0-9]{1,18}-[0-9]{0,18}|-[0-9]{1,18})")
"""A single range. For several, nginx sends overlapping bytes twice, and S3 sends none. nginx
answers malformed ranges and numbers beyond 63 bits with 416. Garage wants the unit in lower case.
"""


def is_decided_alike(headers: Headers, *, has_range: bool) -> bool:
    """Whether nginx or a bucket would answer these request headers as we do.

    `has_range` says whether there is a Range that applies and can be satisfied.
    """
    if any(name in headers for name in _OURS_ALONE):
        return False
    asked = headers.get("Range")
    return asked is None or (has_range and _PLAIN_RANGE.fullmatch(asked) is not None)


def follows_redirects(headers: Headers, *, is_download: bool) -> bool:
    """Whether the client may be redirected to another origin for a file.

    Browsers mark downloads and opened links (Fetch Metadata), though not to sites without TLS. What
    pages load, including films, has to come from our origin: their policies name no other, and a
    player would go on using a signed URL after it expired. A client that sends conditions would
    repeat them to the bucket, which has different validators.
    """
    if any(name in headers for name in _CONDITIONS):
        return False
    mode = headers.get("Sec-Fetch-Mode")
    return is_download if mode is None else mode == "navigate"
