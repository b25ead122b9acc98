"""Leaves the bytes of a download to somebody else: an nginx in front, or the bucket they are in.

nginx (X-Accel-Redirect) drops the body of our answer and sends a file from an internal location
instead, or fetches it from the bucket at the URL that `BUCKET_HEADER` names. A client that follows
redirects can be sent to the bucket itself. Neither compares validators as we do, and nginx and the
bucket read some Range headers differently: such requests are not left to them. `deploy/nginx.conf`
and `deploy/nginx-bucket.conf` have nginx's side, with the headers it would drop.
"""

from __future__ import annotations

import re

from werkzeug.datastructures import Headers

ACCEL_HEADER = "X-Accel-Redirect"
BUCKET_HEADER = "X-Bucket-URL"

_OURS_ALONE = ("If-Match", "If-Unmodified-Since")
"""Others would compare them with validators of their own, which the client has never seen."""

_CONDITIONS = (*_OURS_ALONE, "If-None-Match", "If-Modified-Since", "If-Range")

_PLAIN_RANGE = re.compile("bytes=([0-9]{1,18}-[0-9]{0,18}|-[0-9]{1,18})")
"""One range. Of several, nginx sends overlapping bytes twice, and S3 sends none. nginx answers
malformed ranges and numbers beyond 63 bits with 416. Garage knows the unit in small letters only.
"""


def is_decided_alike(headers: Headers, *, has_range: bool) -> bool:
    """Whether nginx or a bucket, left alone with these request headers, sends what we would.

    `has_range` says whether a Range was asked for that applies and has bytes of the file.
    """
    if any(name in headers for name in _OURS_ALONE):
        return False
    asked = headers.get("Range")
    return asked is None or (has_range and _PLAIN_RANGE.fullmatch(asked) is not None)


def follows_redirects(headers: Headers, *, is_download: bool) -> bool:
    """Whether the client may be sent to another origin for a file, at once and just this time.

    Browsers say of downloads and opened links that they are (Fetch Metadata), and say nothing to
    sites without TLS. What pages load, films among it, has to come from our origin: their policies
    name no other, and a player would go on with a signed URL after its end. A client that sends
    conditions would repeat them to the bucket, whose validators are others.
    """
    if any(name in headers for name in _CONDITIONS):
        return False
    mode = headers.get("Sec-Fetch-Mode")
    return is_download if mode is None else mode == "navigate"
